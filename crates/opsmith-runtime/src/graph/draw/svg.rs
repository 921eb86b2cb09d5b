//! SVG.

use std::fmt::Write;

use super::Picture;
use super::dot::fill;
use super::layout::{LINE, Layout, Rect, lay_out};

/// It holds within the picture alone: a page may have others, and words of its own.
const STYLE: &str = "\
.opsmith-graph text{font:12px sans-serif;text-anchor:middle;fill:#222}\
.opsmith-graph .frame{fill:#888;fill-opacity:.08;stroke:#888}\
.opsmith-graph .heading{text-anchor:start;font-weight:bold;fill:#555}\
.opsmith-graph .arrow{fill:none;stroke:#555}\
.opsmith-graph .control{stroke-dasharray:4 3}\
.opsmith-graph .node{stroke:#555}\
.opsmith-graph .second{fill:#555;font-size:11px}";

/// The picture as SVG.
pub(super) fn write(picture: &Picture) -> String {
    let layout = lay_out(picture);
    let (width, height) = (layout.width.max(1.0), layout.height.max(1.0));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"opsmith-graph\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>{STYLE}</style>\n<defs><marker id=\"opsmith-tip\" \
         viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"#555\"/></marker></defs>\n<rect width=\"100%\" height=\"100%\" \
         fill=\"#fff\"/>\n"
    );
    for (rect, name) in &layout.frames {
        rectangle(&mut svg, rect, "frame", "");
        let (x, y) = (rect.x + 8.0, rect.y + 15.0);
        let _ = writeln!(svg, "<text class=\"heading\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(name));
    }
    arrows(&mut svg, picture, &layout);
    for (drawn, rect) in picture.boxes.iter().zip(&layout.boxes) {
        let _ = writeln!(svg, "<g><title>{}</title>", escaped(&drawn.title));
        rectangle(&mut svg, rect, "node", &format!(" fill=\"{}\"", fill(drawn.kind)));
        for (index, line) in drawn.lines.iter().enumerate() {
            let class = if index == 0 { "" } else { " class=\"second\"" };
            let (x, y) = (rect.x + rect.width / 2.0, rect.y + 17.0 + index as f64 * LINE);
            let _ = writeln!(svg, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escaped(line));
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn rectangle(svg: &mut String, rect: &Rect, class: &str, more: &str) {
    let Rect { x, y, width, height } = rect;
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\"{more} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"5\"/>"
    );
}

fn arrows(svg: &mut String, picture: &Picture, layout: &Layout) {
    for ((from, to), arrow) in &picture.arrows {
        let (from, to) = (&layout.boxes[*from], &layout.boxes[*to]);
        let (x0, y0) = (from.x + from.width / 2.0, from.y + from.height);
        let (x1, y1) = (to.x + to.width / 2.0, to.y);
        // An arrow that goes up leaves sideways, so that it does not cross its own box.
        let bend = ((y1 - y0).abs() / 2.0).max(20.0);
        let class = if arrow.is_control { "arrow control" } else { "arrow" };
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" marker-end=\"url(#opsmith-tip)\" d=\"M{x0:.1} {y0:.1}C{x0:.1} {:.1} {x1:.1} {:.1} \
             {x1:.1} {y1:.1}\"><title>{}</title></path>",
            y0 + bend,
            y1 - bend,
            escaped(&arrow.labels.join(", "))
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
