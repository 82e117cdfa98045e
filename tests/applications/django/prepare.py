"""Makes the tables, and as many users as the load has."""

import os

import django
from django.core.management import call_command

from load import PASSWORD, USERS, name

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site1.settings")
django.setup()
call_command("migrate", verbosity=0)

from django.contrib.auth.models import User  # noqa: E402: the settings have to be there

for number in range(USERS):
    User.objects.create_superuser(name(number), password=PASSWORD)
