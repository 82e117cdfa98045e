//! Where a trace is kept.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A local folder, or `s3://bucket/prefix` in any S3-compatible store.
///
/// Credentials, region and endpoint of a store come from the usual `AWS_…` environment variables
/// (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`,
/// `AWS_ALLOW_HTTP`, …).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    Folder(PathBuf),
    /// `prefix` has no slash at either end and may be empty.
    S3 {
        bucket: String,
        prefix: String,
    },
}

impl Location {
    pub fn folder(path: impl AsRef<Path>) -> Self {
        Self::Folder(path.as_ref().to_owned())
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Self::Folder(path)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    #[error("the location of a trace is empty")]
    Empty,
    #[error("{0:?} names no bucket; write s3://bucket/prefix")]
    NoBucket(String),
    #[error(
        "{0:?} is of a kind that a trace cannot be kept in; use a folder or s3://bucket/prefix"
    )]
    UnknownScheme(String),
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() {
                return Err(LocationError::NoBucket(text.to_owned()));
            }
            return Ok(Self::S3 {
                bucket: bucket.to_owned(),
                prefix: prefix.trim_matches('/').to_owned(),
            });
        }
        if let Some(path) = text.strip_prefix("file://") {
            return Ok(Self::Folder(path.into()));
        }
        if text.is_empty() {
            return Err(LocationError::Empty);
        }
        match text.split_once("://") {
            Some(_) => Err(LocationError::UnknownScheme(text.to_owned())),
            None => Ok(Self::Folder(text.into())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "{}", path.display()),
            Self::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_reads_back_as_it_is_shown() {
        for text in ["trace", "/var/lib/trace", "s3://bucket", "s3://bucket/a/b"] {
            let location: Location = text.parse().unwrap();
            assert_eq!(location.to_string(), text);
        }
        assert_eq!(
            "s3://b/a/".parse(),
            Ok(Location::S3 {
                bucket: "b".into(),
                prefix: "a".into()
            })
        );
        assert_eq!("file:///x".parse(), Ok(Location::folder("/x")));
    }

    #[test]
    fn a_location_that_means_nothing_is_refused() {
        assert_eq!("".parse::<Location>(), Err(LocationError::Empty));
        assert_eq!(
            "s3:///x".parse::<Location>(),
            Err(LocationError::NoBucket("s3:///x".into()))
        );
        assert_eq!(
            "gs://b/x".parse::<Location>(),
            Err(LocationError::UnknownScheme("gs://b/x".into()))
        );
    }
}
