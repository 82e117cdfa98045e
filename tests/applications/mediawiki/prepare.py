"""Installs the wiki into the database, and makes as many users as the load has."""

import os
import pathlib
import subprocess
import urllib.parse

from load import PASSWORD, SITE, USERS, WIKI, name

SETTINGS = WIKI / "LocalSettings.php"


def maintain(script, *arguments):
    done = subprocess.run(
        ["php", WIKI / "maintenance" / script, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise SystemExit(f"Error: {script} has failed\n{done.stdout}")


def main():
    url = urllib.parse.urlsplit(os.environ["DATABASE_URL"])
    user, password = url.username, url.password or ""
    SETTINGS.unlink(missing_ok=True)
    database = ["--dbtype", "postgres", "--dbserver", url.hostname, "--dbport", str(url.port or 5432)]
    database += ["--dbname", url.path.strip("/"), "--dbuser", user, "--dbpass", password]
    database += ["--installdbuser", user, "--installdbpass", password]
    place = ["--server", f"http://{SITE}", "--scriptpath", "", "--confpath", WIKI]
    maintain("install.php", *database, *place, "--pass", PASSWORD, "Notes", "Admin")
    with SETTINGS.open("a") as settings:
        settings.write(f"require '{pathlib.Path('settings.php').resolve()}';\n")
    for number in range(USERS):
        maintain("createAndPromote.php", name(number), PASSWORD)


main()
