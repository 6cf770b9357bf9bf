//! The rows as one group of a Parquet file.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{Type, TypePtr};

use super::{COLUMNS, Column, Row};

pub(super) fn bytes(rows: &[Row<'_>]) -> Result<Vec<u8>> {
    let fields = COLUMNS.iter().map(|(name, column)| field(name, *column)).collect::<Result<Vec<_>>>()?;
    let schema = Arc::new(Type::group_type_builder("jobs").with_fields(fields).build()?);
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::default()))?;
    let mut group = file.next_row_group()?;
    for (_, column) in &COLUMNS {
        let Some(mut writer) = group.next_column()? else { break };
        match column {
            Column::Text { is_always_there, of } => {
                let values = rows.iter().map(|row| Ok(of(row).map(ByteArray::from)));
                write(writer.typed::<ByteArrayType>(), *is_always_there, values)?;
            }
            Column::Number { is_always_there, of } => {
                let values = rows.iter().map(|row| of(row.job).map(signed).transpose());
                write(writer.typed::<Int64Type>(), *is_always_there, values)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.into_inner()
}

fn field(name: &str, column: Column) -> Result<TypePtr> {
    let (physical, logical, is_always_there) = match column {
        Column::Text { is_always_there, .. } => {
            (Physical::BYTE_ARRAY, Some(LogicalType::String), is_always_there)
        }
        Column::Number { is_always_there, .. } => (Physical::INT64, None, is_always_there),
    };
    let repetition = if is_always_there { Repetition::REQUIRED } else { Repetition::OPTIONAL };
    let built = Type::primitive_type_builder(name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()?;
    Ok(Arc::new(built))
}

/// The values that are there, and where some may be absent, for each row 1 where there is one and 0 where there is none.
fn write<T: DataType>(
    writer: &mut ColumnWriterImpl<'_, T>,
    is_always_there: bool,
    values: impl Iterator<Item = Result<Option<T::T>>>,
) -> Result<()> {
    let (mut there, mut levels) = (Vec::new(), Vec::new());
    for value in values {
        let value = value?;
        levels.push(i16::from(value.is_some()));
        there.extend(value);
    }
    writer.write_batch(&there, (!is_always_there).then_some(&*levels), None)?;
    Ok(())
}

fn signed(number: u64) -> Result<i64> {
    i64::try_from(number).map_err(|_| ParquetError::General(format!("{number} is over {}", i64::MAX)))
}
