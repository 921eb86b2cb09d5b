//! Files: of graphs, of tensors, of libraries, and what libraries say of themselves.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use opsmith_core::{DType, Shape};
use opsmith_runtime::{Graph, Library, Session, Tensor, load_tensors, save_tensors};

/// A file of this process that goes when it is dropped.
struct File(PathBuf);

impl File {
    fn new() -> File {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        File(folder.join(format!("opsmith-fuzz-{}-{number}", std::process::id())))
    }

    fn of(content: &[u8]) -> File {
        let file = File::new();
        std::fs::write(&file.0, content).expect("the folder can be written to");
        file
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // It is not there where nothing was saved.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// What a fuzzer cannot guess is made for it: where the input begins with `:`, a container whose lengths are right, of the parts
/// between bytes of 0xff: a graph, the header's entries for tensors, their bytes. Any other input is a file as it is.
fn file(data: &[u8], has_graph: bool) -> File {
    let Some(parts) = data.strip_prefix(b":") else { return File::of(data) };
    let mut parts = parts.splitn(if has_graph { 3 } else { 2 }, |byte| *byte == 0xff);
    let mut header = b"{".to_vec();
    if has_graph {
        let graph = String::from_utf8_lossy(parts.next().unwrap_or(&[]));
        let graph = serde_json::Value::from(graph);
        header.extend(format!("\"__metadata__\":{{\"opsmith.graph\":{graph}}}").bytes());
    }
    let tensors = parts.next().unwrap_or(&[]);
    if has_graph && !tensors.is_empty() {
        header.push(b',');
    }
    header.extend_from_slice(tensors);
    header.push(b'}');
    let length = (header.len() as u64).to_le_bytes();
    File::of(&[&length[..], &header, parts.next().unwrap_or(&[])].concat())
}

/// The file of a graph. What is read is the same when it is saved and read again, and can be drawn.
pub(crate) fn graphs(data: &[u8]) {
    let first = file(data, true);
    let needed = Graph::libraries_of(&first.0);
    let Ok(graph) = Graph::load(&first.0, &[]) else { return };
    assert!(needed.is_ok(), "a graph is read whose libraries cannot be told: {needed:?}");
    drop((graph.to_dot(), graph.to_svg()));
    let (second, third) = (File::new(), File::new());
    // What files cannot hold is told.
    if graph.save(&second.0).is_err() {
        return;
    }
    let again = Graph::load(&second.0, &[]).expect("what was saved can be read");
    again.save(&third.0).expect("it could be saved before");
    let [second, third] = [second, third].map(|file| std::fs::read(&file.0).expect("it is there"));
    assert_eq!(second, third, "it is another graph when it is saved and read");
}

/// The file of a checkpoint. What is read is the same when it is saved and read again; a session takes it whole or not at all.
pub(crate) fn checkpoints(data: &[u8]) {
    static SESSION: LazyLock<Session> = LazyLock::new(|| {
        let graph = Graph::new();
        for (name, dtype, shape) in [("w", DType::Float32, &[2, 2][..]), ("b", DType::Int64, &[2])] {
            let initial = Tensor::zeros(dtype, shape).expect("it is small");
            graph.variable(name, initial).expect("it is well formed");
        }
        drop(graph.placeholder("x", DType::Float32, &Shape::unknown()));
        Session::new(&graph)
    });
    let first = file(data, false);
    let restored = SESSION.restore(&first.0);
    let Ok(tensors) = load_tensors(&first.0) else {
        assert!(restored.is_err(), "a session takes what cannot be read");
        return;
    };
    let second = File::new();
    let named: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (&name[..], tensor)).collect();
    save_tensors(&second.0, &named).expect("what was read can be saved");
    let mut again = load_tensors(&second.0).expect("what was saved can be read");
    let mut tensors = tensors.clone();
    let show = |list: &mut Vec<(String, Tensor)>| {
        list.sort_by(|a, b| a.0.cmp(&b.0));
        let value = |tensor: &Tensor| tensor.to_value().expect("it is small").bytes;
        list.iter()
            .map(|(name, tensor)| (name.clone(), tensor.dtype(), tensor.shape().to_vec(), value(tensor)))
            .collect::<Vec<_>>()
    };
    assert_eq!(show(&mut tensors), show(&mut again), "they are others when they are saved and read");
}

/// The JSON by which a library says what ops it has.
pub(crate) fn descriptions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // How many there are is nobody's concern.
    let _ = opsmith_runtime::check_description(text);
}

/// The file of a library, which is looked at before it is opened.
pub(crate) fn libraries(data: &[u8]) {
    let file = File::of(data);
    // Whether it is one is nobody's concern: it is not opened.
    let _ = Library::check(&file.0);
}
