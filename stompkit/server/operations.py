"""Operator tasks besides running a broker; the commands of ``stompkit`` call them."""

from stompkit.server.interfaces import MessageStore, StoreError
from stompkit.server.login.password_files import hash_passcode
from stompkit.server.process.assembly import has_lmdb
from stompkit.server.process.assembly import store as make_store
from stompkit.server.process.lock import DirectoryLock
from stompkit.server.process.start_checks import StartReport, check_start
from stompkit.server.settings.process import Settings, StoreSettings
from stompkit.server.settings.reading import SettingsError, parse_settings, read_settings
from stompkit.server.settings.text import settings_text
from stompkit.server.stores.maintenance import Progress, backup, compact, export_store, import_store
from stompkit.server.stores.maintenance import check as check_store

__all__ = [
    "DirectoryLock",
    "MessageStore",
    "Progress",
    "Settings",
    "SettingsError",
    "StartReport",
    "StoreError",
    "StoreSettings",
    "backup",
    "check_start",
    "check_store",
    "compact",
    "export_store",
    "has_lmdb",
    "hash_passcode",
    "import_store",
    "make_store",
    "parse_settings",
    "read_settings",
    "settings_text",
]
