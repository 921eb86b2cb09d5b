//! `cargo xtask docs`: the guides and the references of Python and Rust as one site, in target/site.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::venv::Venv;
use crate::workspace::{Workspace, copy_folder};
use crate::{VENV, run};

/// What a link to the documentation of a crate begins with, in the page of the crates.
const TO_CRATE: &str = "href=\"../rust/";

/// Makes the site. Links that lead nowhere are errors.
pub(crate) fn docs(workspace: &Workspace) -> Result<()> {
    let venv = Venv::open(workspace, VENV)?;
    venv.install_lock(workspace, "docs")?;
    let site = workspace.target.join("site");
    let mut pages = venv.program(workspace, "python");
    pages.arg("xtask/site/site.py").arg(&site);
    run::quietly("Making the pages", &mut pages)?;
    run::quietly("rustdoc", &mut workspace.cargo(&["doc", "--workspace", "--no-deps"]))?;
    copy_folder(&workspace.target.join("doc"), &site.join("rust"))?;
    let crates =
        fs::read_to_string(site.join("reference/rust.html")).context("the page of the crates is missing")?;
    for link in crates.split(TO_CRATE).skip(1) {
        let page = link.split('"').next().unwrap_or_default();
        ensure!(
            site.join("rust").join(page).is_file(),
            "the page of the crates leads to {page}, which rustdoc did not make"
        );
    }
    println!("✓ {}/index.html; the search needs a server: python3 -m http.server -d {0}", site.display());
    Ok(())
}
