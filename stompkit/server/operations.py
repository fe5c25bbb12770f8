"""What operators do beside running a broker; the commands of ``stompkit`` call it."""

from stompkit.server._assembly import has_lmdb
from stompkit.server._assembly import store as make_store
from stompkit.server._lock import DirectoryLock
from stompkit.server._password_files import hash_passcode
from stompkit.server._settings import (
    Settings,
    SettingsError,
    StoreSettings,
    parse_settings,
    read_settings,
)
from stompkit.server._settings_text import settings_text
from stompkit.server._store_commands import Progress, compact, export_store, import_store
from stompkit.server._store_commands import check as check_store
from stompkit.server.interfaces import MessageStore, StoreError

__all__ = [
    "DirectoryLock",
    "MessageStore",
    "Progress",
    "Settings",
    "SettingsError",
    "StoreError",
    "StoreSettings",
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
