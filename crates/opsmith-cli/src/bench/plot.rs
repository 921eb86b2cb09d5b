//! Time against size, as a picture: a line for each op, both axes logarithmic.

use anyhow::{Result, anyhow, bail};
use opsmith_core::DType;
use plotters::prelude::*;

use super::Row;
use super::report::time;

/// The picture's width and height.
const SIZE: (u32, u32) = (900, 560);

/// Draws the times at sizes of all ops that have some.
pub(crate) fn draw(rows: &[Row], dtype: DType) -> Result<String> {
    let timed: Vec<&Row> = rows.iter().filter(|row| points(row).next().is_some()).collect();
    let all = || timed.iter().flat_map(|row| points(row));
    if timed.is_empty() {
        bail!("there is nothing to plot: no op could be timed at sizes");
    }
    let sizes = bounds(all().map(|(size, _)| size));
    let seconds = bounds(all().map(|(_, seconds)| seconds));
    let mut picture = String::new();
    paint(&mut picture, &timed, dtype, sizes, seconds)
        .map_err(|error| anyhow!("the plot cannot be drawn: {error}"))?;
    Ok(picture)
}

/// The sizes of an op, and the times.
fn points(row: &Row) -> impl Iterator<Item = (f64, f64)> {
    row.measured.iter().filter_map(|measured| Some((measured.size? as f64, measured.seconds)))
}

/// The least and the largest of numbers, with some room; a range even where there is one number.
fn bounds(numbers: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) = numbers.fold((f64::INFINITY, 0f64), |(least, most), number| {
        (least.min(number.max(1e-12)), most.max(number.max(1e-12)))
    });
    (least / 1.3, most * 1.3)
}

type Failure = DrawingAreaErrorKind<std::io::Error>;

fn paint(
    picture: &mut String,
    rows: &[&Row],
    dtype: DType,
    sizes: (f64, f64),
    seconds: (f64, f64),
) -> Result<(), Failure> {
    let mut ticks: Vec<f64> = rows.iter().flat_map(|row| points(row)).map(|(size, _)| size).collect();
    ticks.sort_unstable_by(f64::total_cmp);
    ticks.dedup();
    let root = SVGBackend::with_string(picture, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("time of a call, {dtype}"), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(84)
        .build_cartesian_2d(
            (sizes.0..sizes.1).log_scale().with_key_points(ticks),
            (seconds.0..seconds.1).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("size of every dim")
        .x_label_formatter(&|size| format!("{size:.0}"))
        .y_label_formatter(&|seconds| time(*seconds))
        .light_line_style(BLACK.mix(0.05))
        .label_style(("sans-serif", 12))
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    for (index, row) in rows.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let points: Vec<(f64, f64)> = points(row).collect();
        chart
            .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
            .label(&row.op)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        chart.draw_series(points.into_iter().map(|point| Circle::new(point, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 13))
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    root.present()
}
