"""Every bug of Meepo has a test that would fail if this package had it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pymysql
import pytest
import zmq
from pymysqlreplication import BinLogStreamReader
from sqlalchemy import create_engine

from stompkit.client.blocking import Link
from stompkit.replication.eventstore import SqlEventStore, SqlPrepareCommit, es_sub
from stompkit.replication.model.frames import Packet
from stompkit.replication.model.signals import signal
from stompkit.replication.sinks.forwarders import zmq_sub
from stompkit.replication.sources.mysql import MysqlError, OffsetLostError, StreamError
from stompkit.replication.sources.offsets import Checkpoint
from stompkit.replication.workers import QueueReplicator, RqReplicator
from stompkit.replication.workers._backlog import Backlog, Item
from stompkit.replication.workers.messages import (
    CONTENT_TYPE,
    decode_parts,
    encode_keys,
    key_octets,
    topic_frame,
)
from stompkit.testing import RunningBroker
from stompkit.testing.launching.polling import wait_until
from tests.replication.sources.mysql.reading import DEADLINE_S, Database, Reading, received
from tests.servers import MariaDb

#: The faults of Meepo, or of its design, and the test against each, as ``path::name`` from this
#: folder on; or the reason why it is impossible here.
COVERED: Final[dict[str, str]] = {
    # Its publisher for MySQL.
    "server_id can not be given": (
        "sources/mysql/test_preflight.py::test_numbers_are_random_unless_they_are_given"
    ),
    "positions inside of transactions": (
        "sources/mysql/test_signals.py::test_positions_are_sent_at_commits_only"
    ),
    "resuming inside of a statement loses the rest": (
        "sources/mysql/test_resume.py::test_a_checkpoint_is_never_inside_a_transaction"
    ),
    "a transaction is lost when resuming": (
        "sources/mysql/test_resume.py::test_reading_goes_on_at_every_commit"
    ),
    "a position without its file begins at the file's start": (
        "sources/mysql/test_resume.py::test_the_log_is_read_from_where_it_is_asked_for"
    ),
    "file and position are ignored": (
        "sources/mysql/test_resume.py::test_a_position_without_gtid_is_resumed_by_file_and_position"
    ),
    "a lost connection sends the file again": (
        "sources/mysql/test_resume.py::test_a_lost_connection_is_made_again_without_a_gap_or_a_repeat"
    ),
    "a changed key leaves the old row": (
        "sources/mysql/test_signals.py::test_a_key_that_changes_is_a_delete_and_a_write"
    ),
    "the old key is not told": (
        "sources/mysql/test_stream.py::test_an_update_that_changes_the_key_says_what_it_was"
    ),
    "a changed key leaves the old row at the target": (
        "sinks/test_sql_rows.py::test_an_update_of_the_key_moves_the_row_with_what_is_not_told"
    ),
    "signals of two schemas collide": "sources/mysql/test_signals.py::test_keys_are_sent",
    "tables of two schemas collide": (
        "sources/mysql/test_stream.py::test_tables_of_the_same_name_are_told_apart"
    ),
    "a short row image has no key": (
        "sources/mysql/test_stream.py::test_columns_that_are_not_in_a_short_image_are_missing_and_not_null"
    ),
    "tables without a key are skipped": (
        "sources/mysql/test_stream.py::test_tables_without_a_key_are_told_with_whole_rows"
    ),
    "tables with a key of prefixes are skipped": (
        "sources/mysql/test_stream.py::test_a_key_of_prefixes_is_the_whole_columns"
    ),
    "what can not be decoded is skipped": (
        "sources/mysql/test_charsets.py::test_octets_that_are_no_text_are_carried_as_octets"
    ),
    "rows beside one that is not decoded are lost": (
        "sources/mysql/test_stream.py::test_a_row_that_cannot_be_read_does_not_take_others_with_it"
    ),
    "a receiver's exception ends the stream": (
        "sources/mysql/test_signals.py::test_receivers_that_raise_do_not_end_the_stream"
    ),
    "a receiver's exception keeps others from hearing": (
        "model/test_signals.py::test_a_receiver_of_rows_that_fails_keeps_nobody_from_hearing"
    ),
    "user and password are not decoded": (
        "sources/mysql/test_dsn.py::test_user_and_password_are_percent_decoded"
    ),
    "the stream is not closed": (
        "test_meepo_bugs.py::test_no_connection_is_left_of_a_publisher_that_has_ended"
    ),
    "there is no way to stop": (
        "sources/mysql/test_resume.py::test_stop_is_prompt_and_nothing_is_lost"
    ),
    "no position where nothing is wanted": (
        "sources/mysql/test_signals.py::test_positions_are_sent_where_nothing_is_wanted"
    ),
    "no checkpoint where nothing is wanted": (
        "sources/mysql/test_stream.py::test_the_position_moves_on_where_nothing_is_wanted"
    ),
    "no lag": "test_meepo_bugs.py::test_the_lag_is_the_age_of_the_newest_transaction",
    # Its publisher for sessions.
    "rolled back rows are published later": (
        "sources/test_session.py::test_what_was_rolled_back_is_not_published_by_the_next_commit"
    ),
    "the commit after a rolled back update fails": (
        "sources/test_session.py"
        "::test_the_commit_after_an_update_that_was_rolled_back_does_not_fail"
    ),
    "a released savepoint publishes": (
        "sources/test_session.py::test_a_savepoint_that_is_released_waits_for_the_outermost_commit"
    ),
    "a rolled back savepoint is published": (
        "sources/test_session.py::test_the_rollback_of_a_savepoint_drops_its_own_changes_only"
    ),
    "a key of 0 is not published": (
        "sources/test_session_changes.py::test_a_key_that_is_zero_is_published"
    ),
    "a key of empty text is not published": (
        "sources/test_session_changes.py::test_a_key_that_is_empty_text_is_published"
    ),
    "a key of 0 is not sent": "model/test_signals.py::test_a_row_is_told_by_its_key",
    "a key of 0 is not prepared or stored": (
        "test_meepo_bugs.py::test_keys_that_are_false_are_prepared_and_stored"
    ),
    "setting the same value is an update": (
        "sources/test_session_changes.py::test_setting_what_is_there_already_publishes_nothing"
    ),
    "a write and an update of one new row": (
        "sources/test_session_changes.py"
        "::test_writing_and_changing_a_row_in_one_transaction_is_one_write"
    ),
    "a write and a delete of no row": (
        "sources/test_session_changes.py"
        "::test_a_row_that_was_written_and_deleted_in_one_transaction_was_never_there"
    ),
    "attributes named otherwise than columns": (
        "sources/test_session.py::test_a_row_that_was_added_is_published_with_its_key_and_values"
    ),
    "update() and insert() of the ORM are not seen": (
        "sources/test_session_bulk.py::test_a_statement_is_told_as_what_it_does"
    ),
    "rows that are inserted together are not seen": (
        "sources/test_session_bulk.py"
        "::test_rows_that_are_inserted_together_are_told_with_their_keys"
    ),
    "the old bulk methods are not seen": (
        "sources/test_session_bulk.py::test_the_old_bulk_methods_are_told"
    ),
    "a list of tables can not be merged with more": (
        "sources/test_session_publisher.py::test_only_the_tables_that_were_named_are_published"
    ),
    "rows of associations are not seen": (
        "sources/test_session_changes.py::test_rows_of_an_association_are_changes_of_its_table"
    ),
    "sessions of asyncio are not seen": (
        "sources/test_session_values.py::test_sessions_of_asyncio_are_watched"
    ),
    "a crash behind the commit loses events": (
        "sources/test_relay_processes.py::test_what_was_committed_is_published_whoever_is_killed"
    ),
    "writes come before updates before deletes": (
        "sources/test_session.py::test_changes_of_several_flushes_are_one_changeset_in_their_order"
    ),
    "removing the session hides what was left": (
        "sources/test_session.py::test_a_session_that_is_removed_is_watched_when_it_is_made_again"
    ),
    "sender= of a factory matches no session": (
        "model/test_signals.py::test_sessions_of_two_factories_are_told_apart"
    ),
    # Its subscribers.
    "printing raises": (
        "sinks/forwarders/test_printing.py::test_keys_of_several_columns_can_be_told_from_text"
    ),
    "every line names the last event": (
        "sinks/forwarders/test_printing.py::test_each_line_names_its_own_event"
    ),
    "every message names the last event": (
        "sinks/forwarders/test_zmq.py::test_each_action_of_the_tables_is_published_under_its_own_name"
    ),
    "a late subscriber misses what was sent": (
        "sinks/forwarders/test_zmq.py::test_nobody_is_waited_for_in_vain"
    ),
    "what a slow subscriber misses is not told": (
        "sinks/forwarders/test_zmq.py"
        "::test_what_a_slow_subscriber_misses_is_counted_and_told_and_others_have_it"
    ),
    "nothing can wait for a slow subscriber": (
        "sinks/forwarders/test_zmq.py"
        "::test_a_publisher_can_wait_for_a_subscriber_with_too_much_before_it"
    ),
    "closing drops what was sent": (
        "test_meepo_bugs.py::test_what_was_sent_arrives_when_its_publisher_is_closed"
    ),
    "threads share a socket": (
        "sinks/forwarders/test_zmq.py::test_any_number_of_threads_can_publish"
    ),
    "a composite key arrives as several, text in pieces": (
        "sinks/forwarders/test_zmq.py::test_a_key_arrives_as_the_one_that_it_was"
    ),
    "a subscription has other tables that begin so": (
        "sinks/forwarders/test_zmq.py"
        "::test_who_wants_one_table_has_nothing_of_another_whose_name_begins_so"
    ),
    "nano_sub": "there is no publisher over nanomsg",
    "text of rows controls the terminal": (
        "sinks/forwarders/test_printing.py::test_text_of_a_row_can_not_control_a_terminal"
    ),
    # Its event sourcing.
    "a ttl is not applied": "eventstore/test_redis.py::test_all_keys_of_a_store_expire",
    "the ttl of notes is not applied": ("eventstore/test_redis.py::test_notes_of_sessions_expire"),
    "the ttl is not handed on": ("eventstore/test_subscriptions.py::test_the_ttl_is_that_of_both"),
    "a replay has one day only": (
        "eventstore/test_stores.py::test_all_namespaces_of_the_range_are_replayed"
    ),
    "a replay from yesterday lacks today": (
        "eventstore/test_stores.py::test_what_is_new_is_replayed_from_yesterday_on"
    ),
    "the day is by the client's clock": (
        "eventstore/test_redis.py::test_the_day_of_the_namespace_is_that_of_the_server"
    ),
    "two round trips to add": ("eventstore/test_redis.py::test_to_add_takes_one_round_trip"),
    "a replay from 0 is of today": (
        "eventstore/test_stores.py::test_both_ends_of_what_is_replayed_are_included"
    ),
    "the time 0 is none": "eventstore/test_stores.py::test_the_time_zero_is_a_time",
    "a slow Redis raises behind the commit": (
        "eventstore/test_subscriptions.py::test_others_let_the_commit_through"
    ),
    "a timeout is no error of the connection": (
        "eventstore/test_redis.py::test_others_log_it_and_say_so"
    ),
    "prepared sessions are not recovered": (
        "eventstore/test_recovery.py::test_what_was_committed_is_published_after_a_crash"
    ),
    "a long session keeps the day of its first note": (
        "test_meepo_bugs.py::test_notes_are_found_whenever_they_were_made"
    ),
    "a long session keeps its id": (
        "eventstore/test_publisher.py::test_each_transaction_of_a_long_session_has_an_id_of_its_own"
    ),
    "who writes to Redis runs code in readers": (
        "eventstore/test_redis.py::test_what_others_have_stored_runs_no_code"
    ),
    "receivers hold live objects": (
        "eventstore/test_publisher.py::test_what_is_prepared_is_no_object_of_the_session"
    ),
    "one event for each key, without contents": (
        "eventstore/test_history.py::test_every_change_is_kept_with_what_was_in_it"
    ),
    "the order of events is lost": (
        "eventstore/test_history.py::test_changes_of_one_time_are_in_the_order_in_which_they_came"
    ),
    "keys are stored as their repr": (
        "eventstore/test_stores.py::test_keys_come_back_as_what_they_were"
    ),
    # Its replicators.
    "an unknown topic stops everything": (
        "workers/test_queue.py::test_an_unknown_topic_is_counted_and_logged_once_and_stops_nothing"
    ),
    "topics that begin so are received": (
        "workers/test_listening.py::test_another_table_whose_name_begins_so_is_not_even_received"
    ),
    "a corrupt message stops everything": (
        "workers/test_listening.py::test_messages_that_can_not_be_read_are_counted_and_stop_nothing"
    ),
    "an exception loses the batch": (
        "workers/test_queue.py::test_nothing_is_lost_when_a_callback_raises"
    ),
    "an exception loses the batch of many": (
        "workers/test_queue.py::test_nothing_is_lost_when_a_callback_of_many_raises"
    ),
    "the limit is no bound": (
        "workers/test_queue.py"
        "::test_a_full_backlog_holds_up_who_feeds_it_and_merges_what_waits_already"
    ),
    "leaving out repeats loses the order": (
        "test_meepo_bugs.py::test_keys_that_wait_twice_leave_all_in_the_order_of_the_first_times"
    ),
    "leaving out repeats races with the producer": (
        "workers/test_queue.py::test_what_is_done_last_of_a_key_is_done_after_its_last_change"
    ),
    "the ring differs at every start": (
        "workers/test_ring.py::test_a_key_has_the_same_worker_in_every_process_and_run"
    ),
    "a retry holds up the worker": (
        "workers/test_queue.py::test_a_failed_key_waits_for_its_time_and_holds_up_no_other"
    ),
    "no dead letters": (
        "workers/test_queue.py::test_a_key_is_tried_once_and_as_often_again_as_allowed"
        "_and_then_is_a_dead_letter"
    ),
    "None is half a failure, short results are cut": (
        "workers/test_queue.py::test_results_that_do_not_fit_are_failures"
    ),
    "an idle worker looks once a second": (
        "workers/test_queue.py::test_an_idle_worker_has_a_key_without_waiting_for_a_poll"
    ),
    "workers need fork": (
        "workers/test_queue.py::test_workers_are_started_by_any_method_that_is_safe_with_threads"
    ),
    "workers inherit threads and sockets": (
        "test_meepo_bugs.py::test_a_worker_has_nothing_of_the_process_that_starts_it"
    ),
    "nested callbacks fail late": (
        "workers/test_queue.py::test_a_function_in_a_function_is_refused_where_it_is_decorated"
    ),
    "the context of ZeroMQ is made by the import": (
        "workers/test_listening.py::test_the_socket_is_made_by_the_process_that_uses_it"
    ),
    "a silent connection is never made again": (
        "workers/test_listening.py::test_a_silent_publisher_is_connected_to_again"
    ),
    "failed keys wait for the next message": (
        "workers/test_rq.py"
        "::test_what_has_failed_is_tried_again_by_time_and_not_by_the_next_message"
    ),
    "failed keys are in memory only": (
        "workers/test_sources.py"
        "::test_a_message_is_acknowledged_when_its_keys_are_done_and_not_before"
    ),
    "keys are acknowledged before they are done": (
        "test_meepo_bugs.py::test_keys_of_a_broker_come_again_that_were_not_done"
    ),
    "keys of an unknown topic fail for ever": (
        "workers/test_rq.py::test_an_unknown_topic_is_ignored_and_counted"
    ),
    "a killed parent leaves workers": (
        "workers/test_life.py::test_killing_the_parent_ends_busy_workers"
    ),
    "a killed parent leaves idle workers": (
        "workers/test_life.py::test_killing_the_parent_ends_idle_workers"
    ),
    # Fixes and requests in its pull requests, and its example.
    "the socket can not be used for more": (
        "workers/test_listening.py::test_messages_that_can_not_be_read_are_counted_and_stop_nothing"
    ),
    "the example listens to another namespace": (
        "model/test_signals.py::test_nobody_else_uses_the_names_of_blinkers_default"
    ),
    # Difficult entries of the binary log of MariaDB.
    "a log without names of columns": (
        "sources/mysql/test_preflight.py::test_a_log_without_names_of_columns_is_refused"
    ),
    "unsigned numbers are read as signed": (
        "sources/mysql/test_preflight.py"
        "::test_a_log_that_was_written_without_names_of_columns_is_not_misread"
    ),
    "a stale cache of columns": (
        "sources/mysql/test_schema_changes.py::test_rows_are_read_as_their_table_was_when_they_were_written"
    ),
    "compressed rows are dropped": (
        "sources/mysql/test_stream.py::test_compressed_rows_stop_reading"
    ),
    "a session logs statements": (
        "sources/mysql/test_stream.py::test_rows_that_a_session_has_logged_as_a_statement_stop_reading"
    ),
    "several domains of GTIDs": (
        "sources/mysql/test_stream.py::test_transactions_of_several_domains_are_told"
    ),
    "a server that went away": (
        "sources/mysql/test_resume.py::test_a_server_that_comes_back_is_read_on"
    ),
    "no life without heartbeats": (
        "sources/mysql/test_stream.py::test_the_position_moves_on_where_nothing_is_wanted"
    ),
    "a server_id that is taken": (
        "sources/mysql/test_preflight.py::test_a_number_that_another_reader_has_is_refused"
    ),
    "a server_id that is taken later": (
        "test_meepo_bugs.py::test_a_reader_that_lost_its_number_to_another_says_so"
    ),
    "composite keys in the order of columns": (
        "sources/mysql/test_stream.py::test_a_composite_key_is_in_the_order_of_the_key"
    ),
    "a unique key for a primary one": (
        "sources/mysql/test_stream.py::test_a_unique_key_does_for_a_primary_one"
    ),
    "cascades are not in the log": (
        "sources/mysql/test_preflight.py::test_what_is_not_in_the_log_is_warned_of"
    ),
    "zeros at the end are cut, TIME is wrong below zero, types": (
        "sources/mysql/test_values.py::test_values_of_the_log_are_those_of_the_database"
    ),
    "dates of zeros": (
        "sources/mysql/test_values.py::test_dates_that_are_none_are_what_they_are_or_null_or_text"
    ),
    "the time of the log is taken for now": (
        "test_meepo_bugs.py::test_the_lag_is_the_age_of_the_newest_transaction"
    ),
    "filters know names without schemas": (
        "sources/mysql/test_stream.py::test_tables_of_the_same_name_are_told_apart"
    ),
    "rows of XA come before their commit": (
        "sources/mysql/test_xa.py::test_what_is_prepared_is_told_when_it_is_committed"
    ),
    "rows of XA come though rolled back": (
        "sources/mysql/test_xa.py::test_what_is_prepared_and_rolled_back_is_not_told"
    ),
    "rolled back savepoints are in the log": (
        "sources/mysql/test_stream.py"
        "::test_what_was_rolled_back_to_a_savepoint_is_not_told_though_it_is_in_the_log"
    ),
    "grants are found out by errors": (
        "sources/mysql/test_preflight.py::test_all_that_is_wrong_is_said_at_once"
    ),
    "more grants than needed": (
        "sources/mysql/test_preflight.py::test_no_more_is_needed_than_is_said"
    ),
    "methods to log in": "that is the driver's part, and what its own extras are for",
    "old names of the driver's arguments": (
        # Any warning fails the test.
        "sources/mysql/test_stream.py::test_a_transaction_is_a_changeset"
    ),
    "a purged file": "sources/mysql/test_resume.py::test_files_that_were_purged_are_lost",
    "a position where no event begins": (
        "test_meepo_bugs.py::test_nothing_is_read_from_where_no_event_begins"
    ),
    "the library changes the settings it is given": "each connection is given a dict of its own",
    "a log that was reset has the same names": (
        "sources/mysql/test_resume.py::test_a_log_that_was_reset_is_not_taken_for_the_same"
    ),
    "a position of another server": (
        "sources/mysql/test_resume.py::test_a_position_of_another_server_is_lost"
    ),
    # Meepo's own tests that are not above.
    "its test 1": ("eventstore/test_stores.py::test_keys_come_in_the_order_of_their_last_times"),
    "its test 2": "eventstore/test_stores.py::test_times_that_were_given_come_back",
    "its test 3": ("eventstore/test_stores.py::test_both_ends_of_what_is_replayed_are_included"),
    "its test 4": "eventstore/test_stores.py::test_the_time_of_a_key_can_be_asked",
    "its test 5": "eventstore/test_prepare.py::test_there_is_a_note_until_the_end",
    "its test 6": (
        "eventstore/test_redis.py::test_a_strict_one_raises_where_the_server_does_not_answer"
    ),
    "its tests 7 and 8": ("eventstore/test_subscriptions.py::test_signals_of_sessions_are_noted"),
    "its test 9": "eventstore/test_publisher.py::test_nothing_is_said_of_an_empty_commit",
    "its test 10": ("eventstore/test_publisher.py::test_a_write_is_prepared_told_and_committed"),
    "its test 11": ("eventstore/test_publisher.py::test_a_flush_before_the_commit_changes_nothing"),
    "its test 12": "eventstore/test_publisher.py::test_two_writes_are_prepared_together",
    "its tests 13 and 14": "eventstore/test_publisher.py::test_an_update_is_an_update",
    "its test 15": ("eventstore/test_publisher.py::test_the_second_note_has_what_the_first_had"),
    "its tests 16 and 17": (
        "eventstore/test_publisher.py::test_nothing_is_said_of_a_rollback_before_a_flush"
    ),
    "its test 18": (
        "eventstore/test_publisher.py::test_a_rollback_after_a_flush_is_told_and_no_row"
    ),
    "its test 19": (
        "eventstore/test_publisher.py::test_a_receiver_of_one_factory_hears_nothing_of_another"
    ),
    "its test 20": "sources/mysql/test_signals.py::test_keys_are_sent",
    "its test 21": "sources/mysql/test_signals.py::test_positions_are_sent_at_commits_only",
    "its test 22": "sources/mysql/test_signals.py::test_rows_are_sent_as_meepo_has_them",
    "its test 23": ("workers/test_queue.py::test_ten_keys_of_one_worker_are_done_in_their_order"),
    "its test 24": (
        "workers/test_queue.py::test_a_key_is_tried_once_and_as_often_again_as_allowed"
        "_and_then_is_a_dead_letter"
    ),
    "its test 25": (
        "workers/test_queue.py::test_a_worker_that_was_killed_is_started_again_and_keys_go_on"
    ),
    "its test 26": ("workers/test_queue.py::test_fifty_keys_and_three_workers_with_tiny_backlogs"),
    "its test 27": (
        "workers/test_rq.py::test_all_keys_are_seen_when_a_callback_fails_one_time_in_six"
    ),
    "its test 28": "sources/test_session.py::test_an_empty_commit_publishes_nothing",
    "its test 29": (
        "sources/test_session.py::test_a_row_that_was_added_is_published_with_its_key_and_values"
    ),
    "its tests 30 and 31": (
        "sources/test_session.py::test_a_flush_publishes_nothing_before_the_commit"
    ),
    "its tests 32 and 33": (
        "sources/test_session_changes.py::test_an_update_has_the_row_as_it_was_and_as_it_is"
    ),
    "its test 34": (
        "sources/test_session.py::test_changes_of_several_flushes_are_one_changeset_in_their_order"
    ),
    "its tests 35 and 36": (
        "sources/test_session.py::test_what_was_rolled_back_unflushed_is_not_published"
    ),
    "its test 37": (
        "sources/test_session.py::test_what_was_rolled_back_is_not_published_by_the_next_commit"
    ),
    "its test 38": (
        "sources/test_session.py::test_a_session_that_is_removed_is_watched_when_it_is_made_again"
    ),
    "its tests 39, 40 and 41": "there are no helpers that cast: values have types all the way",
    "its test of the log lines of sessions": (
        "what is prepared is read from the notes, not from the log"
    ),
}


@cache
def _tests_of(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file."""
    body = ast.parse(path.read_text()).body
    names = {each.name for each in body if isinstance(each, ast.FunctionDef)}
    return frozenset(name for name in names if name.startswith("test_"))


def test_the_test_against_each_bug_is_there() -> None:
    folder = Path(__file__).parent
    for bug, where in COVERED.items():
        path, separator, name = where.partition("::")
        if separator:
            assert name in _tests_of(folder / path), bug
        else:
            assert ".py" not in where, bug


# Bugs without another test.


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[Database]:
    """An empty database."""
    with closing(Database(mariadb)) as database:
        yield database


def test_the_lag_is_the_age_of_the_newest_transaction(database: Database) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run("SET timestamp = UNIX_TIMESTAMP() - 1000", "INSERT INTO t VALUES (1)")
    with reading.running(blocking=False) as running:
        assert running.wait_for_end() is None
    assert [change.key for change in running.changes] == [{"id": 1}]
    assert running.publisher.lag_s is not None
    assert 1000 - 1 <= running.publisher.lag_s < 1000 + 10 * DEADLINE_S


def test_no_connection_is_left_of_a_publisher_that_has_ended(database: Database) -> None:
    database.run(
        "CREATE OR REPLACE USER 'leaving'@'localhost'",
        "GRANT ALL PRIVILEGES ON *.* TO 'leaving'@'localhost'",
        "CREATE TABLE t (id INT PRIMARY KEY)",
    )

    def connections() -> int:
        query = "SELECT COUNT(*) FROM INFORMATION_SCHEMA.PROCESSLIST WHERE USER = 'leaving'"
        return int(database.ask(query)[0][0])

    reading = Reading(database, url=database.login("leaving"))
    with reading.running() as running:
        database.run("INSERT INTO t VALUES (1)")
        running.wait_for_changes(1)
        assert connections() > 0
    assert wait_until(lambda: connections() == 0, DEADLINE_S)


def test_a_reader_that_lost_its_number_to_another_says_so(database: Database) -> None:
    """The server ends the older connection; a reconnect of its reader would end the other one."""

    def connect(*, db: str | None = None, **settings: Any) -> Any:
        return pymysql.connect(database=db, ssl_disabled=True, **settings)

    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    with Reading(database).running(server_id=4712) as running:
        database.run("INSERT INTO t VALUES (1)")
        running.wait_for_changes(1)
        settings = {"user": "root", "unix_socket": str(database.server.socket)}
        with closing(BinLogStreamReader(settings, 4712, pymysql_wrapper=connect)) as other:
            other.fetchone()
            problem = running.wait_for_end()
    assert isinstance(problem, StreamError)
    assert "server_id" in str(problem)


@pytest.mark.parametrize(("behind", "problem"), [(1, MysqlError), (10_000_000, OffsetLostError)])
def test_nothing_is_read_from_where_no_event_begins(
    database: Database, behind: int, problem: type[Exception]
) -> None:
    database.run("CREATE TABLE t (id INT PRIMARY KEY)")
    reading = Reading(database)
    database.run("INSERT INTO t VALUES (1)")
    assert len(reading.changes()) == 1
    checkpoint = reading.offsets.load()
    assert checkpoint is not None
    position: dict[str, Any] = json.loads(checkpoint.position)
    del position["gtid"]
    position["pos"] += behind
    database.run("INSERT INTO t VALUES (2)")
    reading.offsets.store(
        Checkpoint(origin=checkpoint.origin, sequence=1, position=json.dumps(position))
    )
    with received() as found, pytest.raises(problem):
        reading.publisher().run()
    assert found == []


def test_keys_that_wait_twice_leave_all_in_the_order_of_the_first_times() -> None:
    """A set has two or three keys in the right order too often for a test."""
    backlog = Backlog(limit=100, max_batch=100)
    for key in [*range(50), *reversed(range(50)), 50]:
        assert backlog.add(Item("t", key, key_octets(key)))
    assert [item.key for item in backlog.take(0.0)] == list(range(51))


@pytest.mark.parametrize("key", [0, "", False, 0.0])
def test_keys_that_are_false_are_prepared_and_stored(key: Any, tmp_path: Path) -> None:
    class FakeSession:
        def __init__(self) -> None:
            self.info: dict[Any, Any] = {}

    engines = [create_engine(f"sqlite:///{tmp_path}/{name}") for name in ("notes", "events")]
    prepare_commit, store = SqlPrepareCommit(engines[0]), SqlEventStore(engines[1])
    es_sub(store, prepare_commit, FakeSession, ["t"])
    session = FakeSession()
    signal("session_prepare").send(session, event={"t_write": [key]})
    assert prepare_commit.session_info(session) == {"t_write": [key]}
    signal("t_write").send(key)
    signal("session_commit").send(session)
    signal("t_update").send(key)
    store.close()
    assert store.replay("t_write") == store.replay("t_update") == [key]
    prepare_commit.close()
    store.close()
    for engine in engines:
        engine.dispose()


def test_what_was_sent_arrives_when_its_publisher_is_closed() -> None:
    count = 500
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, context.socket(zmq.SUB) as subscriber:
        subscriber.setsockopt(zmq.RCVBUF, 4096)
        subscriber.setsockopt(zmq.SUBSCRIBE, topic_frame("users_write"))
        with zmq_sub("tcp://127.0.0.1:*", ["users"], linger_ms=int(DEADLINE_S * 1000)) as publisher:
            subscriber.connect(publisher.address)
            assert publisher.wait_for_subscriber(DEADLINE_S)
            for number in range(count):
                publisher.publish("users_write", [(number, "x" * 10_000)])
        for number in range(count):
            assert subscriber.poll(int(DEADLINE_S * 1000)), f"{number} of {count} have come"
            ((found, _),) = decode_parts(subscriber.recv_multipart()).keys
            assert found == number


def test_notes_are_found_whenever_they_were_made(tmp_path: Path) -> None:
    def by_time(ts: float) -> str:
        return f"notes:{ts}"

    engine = create_engine(f"sqlite:///{tmp_path}/notes")
    for id in ("a", "b"):
        SqlPrepareCommit(engine, namespace=by_time).prepare(id, {"t_write": [1]})
    assert SqlPrepareCommit(engine, namespace=by_time).prepare_info() == {"a", "b"}
    engine.dispose()


#: State of this process, which a worker must not inherit.
_INHERITED: Final[list[str]] = []


def _has_inherited_nothing(key: object) -> bool:
    return not _INHERITED


def test_a_worker_has_nothing_of_the_process_that_starts_it() -> None:
    replicator = QueueReplicator()
    replicator.event("t_write", max_retries=0)(_has_inherited_nothing)
    _INHERITED.append("something")
    try:
        with replicator:
            replicator.submit("t_write", [1]).result(DEADLINE_S)
    finally:
        _INHERITED.clear()
    assert replicator.stats().done == 1


@pytest.mark.stomp_requires("ack")
def test_keys_of_a_broker_come_again_that_were_not_done(stomp_broker: RunningBroker) -> None:
    def link() -> Link:
        return Link(
            [f"{stomp_broker.host}:{stomp_broker.port}"],
            login=stomp_broker.login,
            passcode=stomp_broker.passcode,
            virtual_host=stomp_broker.vhost,
            receipts="receipt" in stomp_broker.capabilities,
        )

    def packet(key: str) -> Packet:
        headers = {"content-type": CONTENT_TYPE, "persistent": "true"}
        return Packet(headers, encode_keys("t_write", [key]))

    is_called, may_end = Event(), Event()
    replicator = RqReplicator()

    @replicator.event("t_write")
    def callback(keys: list[Any]) -> bool:
        is_called.set()
        may_end.wait(DEADLINE_S)
        return False

    queue = stomp_broker.queue("keys")
    with link() as own:
        with link() as other:
            inbox = other.subscribe(queue)
            thread = Thread(target=replicator.run_from, args=(inbox,))
            thread.start()
            own.send(queue, [packet("a")]).result(DEADLINE_S)
            assert is_called.wait(DEADLINE_S)
            assert [each.key for each in replicator.stop(0.0)] == ["a"]
            may_end.set()
            thread.join(DEADLINE_S)
        own.send(queue, [packet("marker")]).result(DEADLINE_S)
        again = own.subscribe(queue)
        found = [again.get(DEADLINE_S) for _ in range(2)]
    assert {each and each.body for each in found} == {packet("a").body, packet("marker").body}
