//! Types by their numbers, which are the same on every server.

pub(super) const BOOL: u32 = 16;
pub(super) const INT8: u32 = 20;
pub(super) const INT4: u32 = 23;
pub(super) const TEXT: u32 = 25;
pub(super) const OID: u32 = 26;
pub(super) const FLOAT4: u32 = 700;
pub(super) const FLOAT8: u32 = 701;
pub(super) const NUMERIC: u32 = 1700;

/// A type by its name in a cast; `None`: nothing can be cast to it here.
pub(super) fn type_named(names: &[String]) -> Option<u32> {
    Some(match names.last()?.as_str() {
        "bool" => BOOL,
        "int2" => 21,
        "int4" => INT4,
        "int8" => INT8,
        "oid" => OID,
        "float4" => FLOAT4,
        "float8" => FLOAT8,
        "numeric" => NUMERIC,
        "text" => TEXT,
        "varchar" => 1043,
        "bpchar" => 1042,
        "bytea" => 17,
        "uuid" => 2950,
        "date" => 1082,
        "time" => 1083,
        "timestamp" => 1114,
        "timestamptz" => 1184,
        _ => return None,
    })
}
