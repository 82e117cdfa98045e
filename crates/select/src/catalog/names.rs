//! Names that mean something.

/// Whether tables of this schema are the database's own business, or ours.
pub fn is_ignored_schema(schema: &str) -> bool {
    matches!(schema, "pg_catalog" | "information_schema" | "pg_toast")
        || schema.starts_with("pg_temp")
        || schema.starts_with("pg_toast_temp")
        || schema.starts_with("hindcast")
}

/// Built-in functions that run queries they are given, or read tables they are told the names of.
pub fn runs_anything(function: &str) -> bool {
    matches!(
        function,
        "ts_stat"
            | "ts_rewrite"
            | "cursor_to_xml"
            | "cursor_to_xmlschema"
            | "query_to_xml"
            | "query_to_xmlschema"
            | "query_to_xml_and_xmlschema"
            | "table_to_xml"
            | "table_to_xml_and_xmlschema"
            | "schema_to_xml"
            | "schema_to_xml_and_xmlschema"
            | "database_to_xml"
            | "database_to_xml_and_xmlschema"
    )
}

/// Built-in functions on large objects, which all sit in one table.
pub fn is_large_object(function: &str) -> bool {
    function.starts_with("lo_") || matches!(function, "loread" | "lowrite")
}

/// Where large objects are.
pub const LARGE_OBJECTS: &str = "pg_catalog.pg_largeobject";

/// Built-in functions that take or give back advisory locks. Whether one is free decides what
/// `pg_try_advisory_lock` says, so they count like a table that any statement which uses one of
/// them writes.
pub fn is_advisory_lock(function: &str) -> bool {
    function.starts_with("pg_advisory_") || function.starts_with("pg_try_advisory_")
}

/// Never a table's name, which has a schema.
pub const ADVISORY_LOCKS: &str = "advisory locks";

/// Extensions that come with Postgres or are very common, and whose functions touch no tables,
/// including those that are not `IMMUTABLE`.
pub fn touches_nothing(extension: &str) -> bool {
    matches!(
        extension,
        "uuid-ossp"
            | "pgcrypto"
            | "citext"
            | "hstore"
            | "ltree"
            | "pg_trgm"
            | "unaccent"
            | "fuzzystrmatch"
            | "btree_gin"
            | "btree_gist"
            | "intarray"
            | "cube"
            | "earthdistance"
            | "isn"
            | "seg"
            | "vector"
            | "pg_stat_statements"
    )
}
