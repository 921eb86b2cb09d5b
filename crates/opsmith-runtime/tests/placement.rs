//! Where nodes are placed: what handles and outputs say, what derivatives and optimisers make of it, and files and pictures.

use opsmith_core::{Code, DType, Device, Shape};
use opsmith_runtime::{Adam, Graph, Library, Optimizer, Output, Session, SessionOptions, Tensor, gradients};

fn vector(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, &[values.len()]).unwrap()
}

fn placeholder(graph: &Graph) -> Output {
    graph.placeholder("x", DType::Float64, &Shape::parse("[2]").unwrap()).unwrap()
}

const CARD: Device = Device::cuda(1);

#[test]
fn a_node_is_placed_where_its_handle_says_and_what_is_made_of_it_there_too() {
    let graph = Graph::new();
    let card = graph.device("cuda:1").unwrap();
    assert_eq!((graph.device_of_new(), card.device_of_new()), (Device::CPU, CARD));
    let layer = card.scope("layer").unwrap();
    let x = placeholder(&layer);
    assert_eq!((x.device(), x.name().as_str()), (CARD, "layer/x"), "a scope keeps the device");
    assert_eq!(layer.with_device(Device::CPU).scope_name(), "layer/", "and the other way round");
    assert_eq!(card.unscoped().device_of_new(), CARD);
    let y = (&x + &x).unwrap();
    assert_eq!((y.device(), y.name().as_str()), (CARD, "Add"));
    assert_eq!(y.within(&graph).unwrap().exp().unwrap().device(), Device::CPU);
    assert_eq!(graph.output("layer/x").unwrap().device(), CARD);
    assert_eq!(
        format!("{y:?} {:?}", y.operation()),
        "Output(Add float64[2] on cuda:1) Operation(Add Add on cuda:1)"
    );
    assert!(!format!("{:?}", placeholder(&graph)).contains(" on "));
    for wrong in ["gpu", "cuda:-1", "cuda:x", ""] {
        let error = graph.device(wrong).unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(
            error.message(),
            format!(
                "`{wrong}` is not a device: expected `cpu`, or `cuda:` and a number from 0, as in `cuda:0`"
            )
        );
    }
}

#[test]
fn gradients_and_steps_of_optimisers_are_where_nodes_and_variables_are() {
    let graph = Graph::new();
    let card = graph.device("cuda:1").unwrap();
    let (here, there) = (
        graph.variable("here", vector(&[1.0, 2.0])).unwrap(),
        card.variable("there", vector(&[3.0, 4.0])).unwrap(),
    );
    let product = (there.output() * &here.output().within(&card).unwrap()).unwrap();
    let loss = product.within(&graph).unwrap().square().unwrap().sum(&[]).unwrap();
    let found = gradients(&[&loss], &[here.output(), there.output()], None).unwrap();
    assert!(
        found.iter().flatten().all(|gradient| gradient.device() == CARD),
        "both of the product's gradient"
    );
    let of_square = graph.output("gradients/Square_grad").unwrap();
    assert_eq!(of_square.device(), Device::CPU);
    Adam::default().minimize(&loss).unwrap();
    let variables = graph.variables();
    let places: Vec<(&str, Device)> =
        variables.iter().map(|variable| (variable.name(), variable.output().device())).collect();
    for (name, device) in places {
        let is_there = name.contains("there") && !name.ends_with("/steps");
        assert_eq!(device, if is_there { CARD } else { Device::CPU }, "{name}");
    }
    let steps = graph.operations().into_iter().filter(|operation| operation.kind() == "AdamStep");
    let places: Vec<Device> = steps.map(|step| step.device()).collect();
    assert_eq!(places, [Device::CPU, CARD]);
}

#[test]
fn files_keep_the_place_and_older_ones_mean_the_cpu() {
    let folder = std::env::temp_dir().join(format!("opsmith-placement-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("graph.opsmith");
    let graph = Graph::new();
    let card = graph.device("cuda:1").unwrap();
    let x = placeholder(&graph);
    let variable = card.variable("v", vector(&[1.0, 2.0])).unwrap();
    let sum = (&x.within(&card).unwrap() + variable.output()).unwrap();
    variable.assign(&sum).unwrap();
    graph.save(&path).unwrap();
    let loaded = Graph::load(&path, &[]).unwrap();
    let places = |graph: &Graph| -> Vec<(String, Device)> {
        graph.operations().iter().map(|it| (it.name().to_owned(), it.device())).collect()
    };
    assert_eq!(places(&loaded), places(&graph));
    assert_eq!(loaded.device_of_new(), Device::CPU);
    assert!(graph.to_dot().unwrap().contains("cuda:1") && graph.to_svg().unwrap().contains("cuda:1"));
    let text = std::fs::read(&path).unwrap();
    let places = String::from_utf8_lossy(&text).matches("cuda:1").count();
    assert_eq!(places, 4, "the variable, its initial value, the sum and the assignment");
    // A file from before there were places: the same without the field.
    let mut older = text.clone();
    let field = br#",\"device\":\"cuda:1\""#;
    while let Some(at) = older.windows(field.len()).position(|bytes| bytes == field) {
        older[at..at + field.len()].fill(b' ');
    }
    assert!(!String::from_utf8_lossy(&older).contains("device"));
    std::fs::write(&path, older).unwrap();
    let found = Graph::load(&path, &[]).unwrap();
    assert_eq!(found.num_nodes(), graph.num_nodes());
    assert!(found.operations().iter().all(|it| it.device() == Device::CPU));
    // A file that says what is no device.
    let mut wrong = text;
    while let Some(at) = wrong.windows(6).position(|bytes| bytes == b"cuda:1") {
        wrong[at..at + 6].copy_from_slice(b"gpu__1");
    }
    std::fs::write(&path, wrong).unwrap();
    let error = Graph::load(&path, &[]).unwrap_err();
    assert!(
        error.message().contains("node `v/initial`: `gpu__1` is not a device: expected `cpu`, or"),
        "{error}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_node_that_a_card_cannot_run_is_an_error_of_its_line_whether_there_is_a_card_or_not() {
    let graph = Graph::new();
    let x = placeholder(&graph);
    let unique = Library::standard().unwrap().op("Unique").unwrap();
    let places = graph.device("cuda:0").unwrap().call(&unique).arg(&x).name("places").build().unwrap();
    let fed = vector(&[2.0, 1.0]);
    for simplify in [true, false] {
        let options = SessionOptions { simplify, ..SessionOptions::default() };
        let session = Session::with_options(&graph, options);
        let error = session.run(&[&places.output(1).unwrap()], &[(&x, &fed)]).unwrap_err();
        assert_eq!(error.code(), Code::Unimplemented);
        assert!(error.message().starts_with("node `places`, made at "), "{error}");
        assert!(
            error.message().contains("placement.rs:") && error.message().contains("Unique: has no CUDA"),
            "{error}"
        );
        let options = SessionOptions { allow_soft_placement: true, ..options };
        let session = Session::with_options(&graph, options);
        let found = session.run(&[&places.output(1).unwrap()], &[(&x, &fed)]).unwrap();
        assert_eq!(found[0].to_vec::<i64>().unwrap(), [1, 0]);
    }
}
