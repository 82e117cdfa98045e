use std::path::Path;

use super::*;

fn addresses(url: &str) -> Result<String, UrlError> {
    let url: DatabaseUrl = url.parse()?;
    Ok(url
        .addresses
        .iter()
        .map(Address::to_string)
        .collect::<Vec<_>>()
        .join(" "))
}

#[test]
fn hosts_are_read_as_libpq_reads_them() {
    let check =
        |url: &str, expected: &str| assert_eq!(addresses(url).as_deref(), Ok(expected), "{url}");
    check("postgres://localhost/db", "localhost:5432");
    check(
        "postgresql://u:p@db.example:6000/db?sslmode=disable",
        "db.example:6000",
    );
    check("postgres://a:1,b:2,c/db", "a:1 b:2 c:5432");
    check("postgres://[::1]:7/db", "[::1]:7");
    check("postgres:///db", "/var/run/postgresql/.s.PGSQL.5432");
    check("postgres:///db?host=/tmp&port=7", "/tmp/.s.PGSQL.7");
    check("postgres://%2Ftmp%2Fx:9/db", "/tmp/x/.s.PGSQL.9");
    check("postgres:///db?host=/tmp/.s.PGSQL.9", "/tmp/.s.PGSQL.9");
    check("postgres:///db?host=a,b&port=1,2", "a:1 b:2");
    check("postgres:///db?host=a,b&port=1", "a:1 b:1");
}

#[test]
fn mistakes_are_named() {
    let check = |url: &str, expected: UrlError| assert_eq!(addresses(url), Err(expected), "{url}");
    check("mysql://localhost", UrlError::Scheme);
    check("localhost:5432", UrlError::Scheme);
    check("postgres://h:port/db", UrlError::Port("port".into()));
    check("postgres://h:0/db", UrlError::Port("0".into()));
    check("postgres://[::1/db", UrlError::Host("[::1".into()));
    check(
        "postgres:///db?host=a,b,c&port=1,2",
        UrlError::PortCount { hosts: 3, ports: 2 },
    );
    check(
        "postgres://h/db?sslmode=full",
        UrlError::SslMode("full".into()),
    );
    for unescaped in ["u:s3cr/et@h/d", "u:12/s3cret@h/d", "u:s3cret?@h/d"] {
        check(&format!("postgres://{unescaped}"), UrlError::Login);
    }
    let failed = read("postgres://u:s3cr%et@h/d", &[], &[]).unwrap_err();
    assert!(!failed.to_string().contains("s3cr"), "{failed}");
    check("postgres://h/d%zzb", UrlError::Escape("database"));
    check(
        "postgres://h/db?sslmod=full",
        UrlError::Parameter("sslmod".into()),
    );
}

#[test]
fn the_password_is_read_and_never_shown() {
    let url: DatabaseUrl = "postgres://al%40ice:s%3Acr@et@h/shop%20x".parse().unwrap();
    assert_eq!(url.user.as_deref(), Some("al@ice"));
    assert_eq!(url.password.as_deref(), Some("s:cr@et"));
    assert_eq!(url.to_string(), "postgres://al%40ice@h:5432/shop%20x");
    assert!(!format!("{url:?}").contains("cr@et"));
    let tls = "postgres://u@h:5432/d?sslmode=verify-full&sslrootcert=%2Fca%20s.pem";
    assert_eq!(read(tls, &[], &[]).unwrap().to_string(), tls);
    let again: DatabaseUrl = "postgres://al%40ice@%2Ftmp%2F.s.PGSQL.7/x".parse().unwrap();
    assert_eq!(
        again.to_string().parse::<DatabaseUrl>().unwrap().addresses,
        again.addresses
    );
}

/// Reads with these variables, and these files, of which those that others can read end in `!`.
fn read(
    text: &str,
    variables: &[(&str, &str)],
    files: &[(&str, &str)],
) -> Result<DatabaseUrl, UrlError> {
    let variable = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| (*value).to_owned())
    };
    let file = |path: &Path| {
        let found = files
            .iter()
            .find(|(name, _)| Path::new(name.trim_end_matches('!')) == path);
        let (name, text) = found.ok_or(std::io::ErrorKind::NotFound)?;
        Ok(TextFile {
            text: (*text).to_owned(),
            exposed: name.ends_with('!'),
        })
    };
    let environment = Environment {
        variable: &variable,
        file: &file,
    };
    DatabaseUrl::read(text, &environment)
}

/// The first address, user, database and password.
fn shown(url: &DatabaseUrl) -> String {
    let address = &url.addresses[0];
    let password = url.password(address, &url.database());
    format!(
        "{address} {} {} {}",
        url.user(),
        url.database(),
        password.as_deref().unwrap_or("-")
    )
}

#[test]
fn a_list_of_keywords_says_the_same_as_a_url() {
    let check = |text: &str, expected: &str| {
        assert_eq!(shown(&read(text, &[], &[]).unwrap()), expected, "{text}");
    };
    check("host=h user=u", "h:5432 u u -");
    check(
        r"  host = h port=7 dbname='a \'b\\' password=s\ p user=''",
        "h:7 postgres a 'b\\ s p",
    );
    check("dbname=d host=/tmp", "/tmp/.s.PGSQL.5432 postgres d -");
    for (text, after) in [
        ("host=h user", Some("host")),
        ("host='h", None),
        ("a b=c", None),
        ("user=u password=my secret", Some("password")),
    ] {
        let failed = read(text, &[], &[]).unwrap_err();
        let expected = UrlError::Keyword(after.map(str::to_owned));
        assert_eq!(failed, expected, "{text}");
        assert!(!failed.to_string().contains("secret"));
    }
}

#[test]
fn what_is_not_given_comes_from_the_service_then_from_variables() {
    let variables = [
        ("PGHOST", "variable"),
        ("PGPORT", "1"),
        ("PGUSER", "variable"),
        ("PGPASSWORD", "variable"),
        ("HOME", "/home"),
        ("USER", "login"),
    ];
    let services = "[other]\nport=9\n[shop]\n# ours\nhost=service\nport=2\nsslmode=require\n\n[last]\nuser=x\n";
    let files = [("/home/.pg_service.conf", services)];
    let check = |text: &str, expected: &str| {
        let url = read(text, &variables, &files).unwrap();
        assert_eq!(shown(&url), expected, "{text}");
        url
    };
    check("postgres://", "variable:1 variable variable variable");
    check("postgres://u:p@h:3/d", "h:3 u d p");
    let url = check("postgres://u@/d?service=shop", "service:2 u d variable");
    assert_eq!(url.ssl_mode, SslMode::Require);
    check(
        "service=shop port=3",
        "service:3 variable variable variable",
    );
    let failed = read("postgres://?service=none", &variables, &files);
    assert_eq!(failed, Err(UrlError::Service("none".into())));
    let none = read("postgres://h/", &[("USER", "login")], &[]).unwrap();
    assert_eq!(shown(&none), "h:5432 login login -");
}

#[test]
fn the_service_file_is_found_where_libpq_finds_it() {
    let files = [
        (
            "/etc/postgresql-common/pg_service.conf",
            "[s]\nhost=system\n",
        ),
        ("/f", "[s]\nhost=named\n"),
    ];
    let host =
        |variables: &[_]| read("service=s", variables, &files).unwrap().addresses[0].to_string();
    assert_eq!(host(&[]), "system:5432");
    assert_eq!(host(&[("PGSERVICEFILE", "/f")]), "named:5432");
    let by_variable = read("postgres://", &[("PGSERVICE", "s")], &files).unwrap();
    assert_eq!(by_variable.addresses[0].to_string(), "system:5432");
}

#[test]
fn a_password_is_looked_up_by_where_it_is_for() {
    let passfile = "# ours\nh:5432:d:u:first\n*:7:*:u:se\\:co\\\\nd\nlocalhost:*:*:*:socket\n*:*:d2:*:other\nbroken\n";
    let home = [("HOME", "/home")];
    let check = |text: &str, expected: &str| {
        let url = read(text, &home, &[("/home/.pgpass", passfile)]).unwrap();
        assert_eq!(shown(&url).rsplit(' ').next(), Some(expected), "{text}");
    };
    check("postgres://u@h/d", "first");
    check("postgres://u@x:7/d", "se:co\\nd");
    check("postgres://u@/d", "socket");
    check("postgres://u@%2Ftmp/d", "-");
    check("postgres://u@h/d3", "-");
    check("postgres://u:given@h/d", "given");
    let url = read("postgres://u@h/d", &home, &[("/home/.pgpass", passfile)]).unwrap();
    let beside = url.with_database("d2");
    assert_eq!(
        beside.password(&beside.addresses[0], "d2").as_deref(),
        Some("other")
    );

    let exposed = read("postgres://u@h/d", &home, &[("/home/.pgpass!", passfile)]).unwrap();
    assert_eq!(shown(&exposed), "h:5432 u d -");
    assert_eq!(
        exposed.exposed_passfile(),
        Some(&PathBuf::from("/home/.pgpass"))
    );
    let named = read("postgres://u@h/d?passfile=/p", &[], &[("/p", passfile)]).unwrap();
    assert_eq!(shown(&named), "h:5432 u d first");
}

#[test]
fn programs_are_told_by_their_environment() {
    let check = |url: &str, expected: &[(&str, &str)]| {
        let mut command = Command::new("pg_dump");
        read(url, &[], &[]).unwrap().hand_to(&mut command);
        let set: std::collections::HashMap<_, _> = command.get_envs().collect();
        for (name, value) in expected {
            let found = set.get(std::ffi::OsStr::new(name)).copied().flatten();
            assert_eq!(found, Some(std::ffi::OsStr::new(value)), "{name} of {url}");
        }
        assert_eq!(command.get_args().count(), 0);
    };
    check(
        "postgres://u:p%40ss@a:1,[::1]:2/d?sslmode=verify-ca&sslrootcert=/ca&options=-cx%3D1",
        &[
            ("PGHOST", "a,::1"),
            ("PGPORT", "1,2"),
            ("PGUSER", "u"),
            ("PGPASSWORD", "p@ss"),
            ("PGDATABASE", "d"),
            ("PGSSLMODE", "verify-ca"),
            ("PGSSLROOTCERT", "/ca"),
            ("PGOPTIONS", "-cx=1"),
        ],
    );
    check(
        "postgres://u@%2Ftmp%2Fsome.dir:6000/d",
        &[("PGHOST", "/tmp/some.dir"), ("PGPORT", "6000")],
    );
}

proptest::proptest! {
    #[test]
    fn no_url_makes_it_panic(text in "(postgres://)?[a-z%0-9@:/?&=,\\[\\]. ']*") {
        let _ = read(&text, &[], &[]);
    }
}
