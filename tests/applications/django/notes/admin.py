import os

from django.contrib import admin

from .models import Note


class Notes(admin.ModelAdmin):
    # The change that a retroaction is tried with: lists show when a note was written.
    list_display = ["__str__", "written"] if os.environ.get("CHANGED") else ["__str__"]


admin.site.register(Note, Notes)
