//! What is written is read back by code that shares nothing with the writers.

use anyhow::{Context, Result, ensure};
use chrono::{DateTime, TimeDelta};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use runlog::{
    Curve, Point, RunlogError, csv, curve_png, event_file, history, log_files, parquet as as_parquet,
};

fn points(n: u32) -> Vec<Point> {
    let start = DateTime::from_timestamp(1_700_000_000, 250_000_000).expect("a time");
    let at = |step: u32| start + TimeDelta::milliseconds(100 * i64::from(step));
    let of = |step: u32, name: &str, value: f64| Point { step, name: name.into(), value, at: at(step) };
    let loss = |step: u32| 1.0 + 6.0 / (1.0 + f64::from(step) / 30.0) + 0.25 * (f64::from(step) * 1.7).sin();
    let mut all: Vec<Point> = (1..=n).map(|s| of(s, "train/loss", loss(s))).collect();
    all.extend((0..=n).step_by(50).map(|s| of(s, "eval/loss", loss(s) + 0.4)));
    all.sort_by_key(|p| p.step);
    all
}

/// CRC-32C bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut value = u32::MAX;
    for byte in bytes {
        for bit in 0..8 {
            let odd = (value ^ u32::from(byte >> bit)) & 1;
            value = (value >> 1) ^ (0x82f6_3b78 * odd);
        }
    }
    !value
}

fn check(masked: &[u8], bytes: &[u8]) -> Result<()> {
    let stored = u32::from_le_bytes(masked.try_into()?).wrapping_sub(0xa282_ead8);
    ensure!(stored.rotate_left(15) == crc(bytes), "wrong checksum");
    Ok(())
}

/// Fields of a protobuf message: number and raw bytes.
fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Vec<u8>)>> {
    fn varint(bytes: &mut &[u8]) -> Result<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (first, rest) = bytes.split_first().context("a varint ends")?;
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let size = match key & 7 {
            0 => {
                out.push((key >> 3, varint(&mut bytes)?.to_le_bytes().to_vec()));
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?)?,
            5 => 4,
            other => anyhow::bail!("wire type {other}"),
        };
        let (content, rest) = bytes.split_at_checked(size).context("a field fits")?;
        out.push((key >> 3, content.to_vec()));
        bytes = rest;
    }
    Ok(out)
}

fn field(message: &[u8], number: u64) -> Result<Vec<u8>> {
    fields(message)?.into_iter().find(|(n, _)| *n == number).map(|(_, c)| c).context("a field")
}

#[test]
fn an_event_file_is_read_back_record_by_record_with_every_checksum() -> Result<()> {
    let points = points(60);
    let file = event_file(&points);
    let (mut rest, mut messages) = (&file[..], Vec::new());
    while !rest.is_empty() {
        let length = usize::try_from(u64::from_le_bytes(rest[..8].try_into()?))?;
        check(&rest[8..12], &rest[..8])?;
        messages.push(rest[12..12 + length].to_vec());
        check(&rest[12 + length..16 + length], &rest[12..12 + length])?;
        rest = &rest[16 + length..];
    }
    assert_eq!(field(&messages[0], 3)?, b"brain.Event:2");
    assert_eq!(messages.len(), points.len() + 1);
    for (message, point) in messages[1..].iter().zip(&points) {
        let wall = f64::from_le_bytes(field(message, 1)?.as_slice().try_into()?);
        assert!((wall - point.at.timestamp_micros() as f64 / 1e6).abs() < 1e-3);
        if point.step > 0 {
            let step = u64::from_le_bytes(field(message, 2)?.as_slice().try_into()?);
            assert_eq!(step, u64::from(point.step));
        }
        let value = field(&field(message, 5)?, 1)?;
        assert_eq!(String::from_utf8(field(&value, 1)?)?, point.name);
        let number = f32::from_le_bytes(field(&value, 2)?.as_slice().try_into()?);
        assert!((f64::from(number) - point.value).abs() < 1e-5);
    }
    Ok(())
}

#[test]
fn parquet_and_csv_hold_the_same_numbers() -> Result<()> {
    let points = points(60);
    let reader = SerializedFileReader::new(bytes::Bytes::from(as_parquet(&points)?))?;
    let rows: Vec<_> = reader.get_row_iter(None)?.collect::<Result<_, _>>()?;
    let text = csv(&points);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("step,name,value,recorded_at"));
    assert_eq!(rows.len(), points.len());
    for ((row, line), point) in rows.iter().zip(lines).zip(&points) {
        assert_eq!(
            (row.get_uint(0)?, row.get_string(1)?, row.get_double(2)?),
            (point.step, &point.name, point.value)
        );
        assert_eq!(row.get_timestamp_micros(3)?, point.at.timestamp_micros());
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(
            (cells[0].parse::<u32>()?, cells[1], cells[2].parse::<f64>()?),
            (point.step, &*point.name, point.value)
        );
        assert_eq!(DateTime::parse_from_rfc3339(cells[3])?, point.at);
    }
    ensure!(as_parquet(&[])?.ends_with(b"PAR1") && csv(&[]).lines().count() == 1);
    Ok(())
}

#[test]
fn the_history_has_a_line_a_step_with_step_time_and_runtime() -> Result<()> {
    let mut points = points(50);
    points[0].value = f64::NAN;
    let text = history(&points);
    let lines: Vec<serde_json::Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    assert_eq!(lines.len(), 51);
    assert_eq!((&lines[0]["_step"], &lines[0]["eval/loss"]), (&0.into(), &"NaN".into()));
    assert!(lines[50]["train/loss"].is_f64() && lines[50]["eval/loss"].is_f64());
    assert!((lines[50]["_runtime"].as_f64().context("runtime")? - 5.0).abs() < 1e-3);
    let names: Vec<String> = log_files("run_1", &points).into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, ["events.out.tfevents.1700000000.run_1", "wandb-history.jsonl", "wandb-summary.json"]);
    assert_eq!(log_files("run_1", &[]), []);
    Ok(())
}

#[test]
fn a_curve_is_a_png_with_both_lines_and_nothing_to_draw_is_an_error() -> Result<()> {
    let mut points = points(400);
    points[7].value = f64::INFINITY;
    let names = vec!["train/loss".into(), "eval/loss".into()];
    let curve = Curve { title: "insurance-r1 \u{e9}".into(), names };
    let picture = curve_png(&points, &curve)?;
    let mut reader = png::Decoder::new(std::io::Cursor::new(&picture)).read_info()?;
    let mut pixels = vec![0; reader.output_buffer_size().context("a size")?];
    let info = reader.next_frame(&mut pixels)?;
    assert_eq!((info.width, info.height), (960, 540));
    for colour in [[0, 114, 178], [230, 159, 0], [40, 44, 52]] {
        let found = pixels.chunks_exact(3).filter(|p| *p == colour).count();
        assert!(found > 200, "{colour:?}: {found}");
    }
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("loss.png"), &picture)?;
    let empty = Curve { title: String::new(), names: vec!["x".into()] };
    assert!(matches!(curve_png(&points, &empty), Err(RunlogError::Empty { .. })));
    curve_png(&points[..1], &curve)?;
    Ok(())
}
