//! Two reports side by side: the same numbers and their ratios.

use super::report::Report;
use super::summary::Summary;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::path::Path;

/// A number that both have.
struct Row {
    name: String,
    first: f64,
    second: f64,
    noisy: bool,
}

/// Compares two files; lines, and the same as one JSON object.
///
/// # Errors
/// A file is no report (exit code 2).
pub fn compare(first: &Path, second: &Path) -> Result<(Vec<String>, Value), Failure> {
    let rows = rows(&Report::read(first)?, &Report::read(second)?);
    if rows.is_empty() {
        return Err(Failure::input("the two reports have no number in common"));
    }
    let mut out = vec![
        format!("A = {}", first.display()),
        format!("B = {}", second.display()),
        format!("{:<52} {:>10} {:>10} {:>7}", "", "A", "B", "B/A"),
    ];
    let line = |row: &Row| {
        let mark = if row.noisy { "~" } else { "" };
        format!(
            "{:<52} {:>10} {:>10} {:>7.3}{mark}",
            row.name,
            number(row.first),
            number(row.second),
            row.second / row.first
        )
    };
    out.extend(rows.iter().map(line));
    if rows.iter().any(|row| row.noisy) {
        out.push("~ one of the two is noisy".to_owned());
    }
    let object = |row: &Row| {
        let ratio = row.second / row.first;
        json!({"name": row.name, "a": row.first, "b": row.second, "ratio": ratio, "noisy": row.noisy})
    };
    let value = json!({"a": first, "b": second, "rows": rows.iter().map(object).collect::<Vec<_>>()});
    Ok((out, value))
}

/// Three digits and a unit of thousands.
fn number(value: f64) -> String {
    match value {
        v if v >= 1e12 => format!("{:.3} T", v / 1e12),
        v if v >= 1e9 => format!("{:.3} G", v / 1e9),
        v if v >= 1e6 => format!("{:.1} M", v / 1e6),
        v => format!("{v:.4}"),
    }
}

/// Numbers by name.
fn numbers(report: &Report) -> Vec<(String, &Summary)> {
    let mut out = Vec::new();
    for (index, path) in report.paths.iter().enumerate() {
        for cell in &path.cells {
            let what = format!("{} {} x {}", cell.name, super::text::block(cell.block_bytes), cell.depth);
            out.push((format!("path {}: {what}", index + 1), &cell.bytes_per_s));
        }
        for cell in &path.sweep {
            let what = format!("{} {} x {}", cell.rw, super::text::block(cell.block_bytes), cell.depth);
            out.push((format!("path {}: sweep {what}", index + 1), &cell.bytes_per_s));
        }
        let variants = path.variants.iter().filter_map(|variant| Some((variant, variant.bytes_per_s.as_ref()?)));
        out.extend(variants.map(|(variant, rate)| (format!("path {}: {}", index + 1, variant.name), rate)));
        out.extend(path.sync_s.as_ref().map(|sync| (format!("path {}: seconds of a durable write", index + 1), sync)));
    }
    if let Some(memory) = &report.memory {
        out.extend(
            memory.copies.iter().map(|copy| (format!("copying by {} threads", copy.threads), &copy.bytes_per_s)),
        );
        out.push(("AdamW, elements a second".to_owned(), &memory.update_elements_per_s));
        out.push(("checksums by one thread".to_owned(), &memory.checksum_bytes_per_s));
    }
    if let Some(found) = report.gpu.as_ref().and_then(|gpu| gpu.found.as_ref()) {
        for copy in &found.copies {
            let piece = super::text::block(copy.piece_bytes as u32);
            let name = format!("GPU copies {}, {}, {piece} x {}", copy.way, copy.memory, copy.streams);
            out.push((name, &copy.bytes_per_s));
        }
        let products = found.products.iter();
        out.extend(products.map(|product| (format!("GPU products, {}", product.precision), &product.operations_per_s)));
    }
    out
}

fn rows(first: &Report, second: &Report) -> Vec<Row> {
    let others = numbers(second);
    let row = |(name, a): (String, &Summary)| {
        let (_, b) = others.iter().find(|(other, _)| *other == name)?;
        Some(Row { name, first: a.median, second: b.median, noisy: a.noisy || b.noisy })
    };
    numbers(first).into_iter().filter_map(row).collect()
}
