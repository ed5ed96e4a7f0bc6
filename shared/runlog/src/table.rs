//! Long tables: one row a number.

use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::{Point, RunlogError};

/// Columns of both tables.
const SCHEMA: &str = "message metrics {
    required int32 step (INTEGER(32,false));
    required binary name (STRING);
    required double value;
    required int64 recorded_at (TIMESTAMP(MICROS,true));
}";

/// A field as RFC 4180 has it.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

/// `step,name,value,recorded_at` with a header line; values in the shortest form that reads back as the same number.
#[must_use]
pub fn csv(points: &[Point]) -> String {
    let mut text = String::from("step,name,value,recorded_at\r\n");
    for p in points {
        let at = p.at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        text.push_str(&format!("{},{},{},{at}\r\n", p.step, field(&p.name), p.value));
    }
    text
}

/// The same columns as Parquet, plainly encoded and not compressed: any reader has what it takes.
///
/// # Errors
/// `Parquet`.
pub fn parquet(points: &[Point]) -> Result<Vec<u8>, RunlogError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut out = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::new(WriterProperties::default()))?;
    let mut group = writer.next_row_group()?;
    let steps: Vec<i32> = points.iter().map(|p| i32::try_from(p.step).unwrap_or(i32::MAX)).collect();
    let names: Vec<ByteArray> = points.iter().map(|p| ByteArray::from(p.name.as_str())).collect();
    let values: Vec<f64> = points.iter().map(|p| p.value).collect();
    let times: Vec<i64> = points.iter().map(|p| p.at.timestamp_micros()).collect();
    let mut column = 0;
    while let Some(mut writer) = group.next_column()? {
        match column {
            0 => writer.typed::<Int32Type>().write_batch(&steps, None, None)?,
            1 => writer.typed::<ByteArrayType>().write_batch(&names, None, None)?,
            2 => writer.typed::<DoubleType>().write_batch(&values, None, None)?,
            _ => writer.typed::<Int64Type>().write_batch(&times, None, None)?,
        };
        writer.close()?;
        column += 1;
    }
    group.close()?;
    writer.close()?;
    Ok(out)
}
