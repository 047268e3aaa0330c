#!/usr/bin/env python3
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the models of fenced Redlock, and of the tokens of PostgreSQL and MySQL, with spin: the protocol as it is
must have no error in any state within the bounds, and each broken variant must have one. The bounds begin with the
model's name, unless it is fenced_redlock.

    check.py          all of them, as TAP; with STILE_SOAK set also those with wider bounds
    check.py --list   their names and bounds
    check.py NAME     one; where it breaks, prints how
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MODELS = pathlib.Path(__file__).resolve().parent
COMPILE = ["cc", "-w", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=4096", "-o", "pan", "pan.c"]
CHECK = ["./pan", "-m40000", "-w22"]

SMALL = "KEYS CLIENTS=2 ROUNDS=1"
ONE_LOST = SMALL + " FORGETS=1"
TWO_LOST = "CLIENTS=2 ROUNDS=1 FORGETS=2"
FIVE_NODES = "CUT NODES=5 START=1 ADOPTIONS=2 " + TWO_LOST
THREE_ADOPTIONS = "CUT ADOPTIONS=3 " + TWO_LOST
LEASES = "redlock_leases ATTEMPTS=2 "
BREAKS = "redlock_leases ATTEMPTS=3 NO_QUEUES BREAKS=1 "
GROWS = LEASES + "NO_QUEUES NEW=5 "
SHRINKS = LEASES + "NO_QUEUES OLD=5 NEW=3 RENEWS=1 "
RESIZE = "redlock_resize OPERATORS=2 "
EPOCHS = "token_epochs ENDS=1 CLEARED=0 "
MYSQL = "mysql_epochs "
SWITCHES = MYSQL + "DUMPS=0 "

RIGHT = {
    "three_clients_and_a_store": "KEYS CLIENTS=3 ROUNDS=1 STORE",
    "two_clients_twice_each": "CLIENTS=2 ROUNDS=2",
    "fence_keys_expire_beside_other_names": "CLIENTS=3 ROUNDS=1 OTHERS=1",
    "a_new_handle_guesses": "CLIENTS=2 ROUNDS=1 OTHERS=1 FRESH",
    "a_node_forgets_and_is_adopted": "START=1 CLIENTS=2 ROUNDS=1 FORGETS=1 ADOPTIONS=2",
    "two_nodes_forget_and_are_adopted": "ADOPTIONS=2 " + TWO_LOST,
    "a_node_was_away_and_follows": "CLIENTS=2 ROUNDS=1 FORGETS=1 ADOPTIONS=2 FOLLOWS=2",
    "three_adoptions": THREE_ADOPTIONS,
    "five_nodes": FIVE_NODES,
    "an_adopted_node_is_quiet_and_hands_nothing_over": LEASES + "FORGETS=2",
    "a_holder_renews_past_the_quiet_time": LEASES + "FORGETS=1 RENEWS=1",
    "three_leases": "redlock_leases ATTEMPTS=3",
    "leases_when_the_group_grows": GROWS + "RENEWS=1",
    "an_operator_breaks_a_lock": BREAKS,
    "a_broken_lock_is_handed_over": LEASES + "BREAKS=1 FORGETS=1",
    "two_operators_resize_at_once": RESIZE + "ADOPTERS=0",
    "two_operators_resize_beside_an_adoption": "redlock_resize OPERATORS=3 GRANTS=2",
    "tokens_after_an_end_of_any_kind": "token_epochs ENDS=1",
    "tokens_of_one_server_without_the_clock": "token_epochs NAMES=2 ONE_SERVER NO_CLOCK CLEARED=0",
    "mysql_tokens_after_an_event": SWITCHES + "EVENTS=1",
    "mysql_tokens_after_switches_and_dumps": MYSQL + "ROUNDS=1 SIZE=6",
    "mysql_tokens_with_a_row_that_outlives_a_restart": SWITCHES + "EVENTS=1 SIZE=6 LIFE_LOGGED",
}
SOAK = {
    "keys_and_two_clients_twice_each": "KEYS CLIENTS=2 ROUNDS=2",
    "two_nodes_forget_after_a_grant": "START=1 ADOPTIONS=2 " + TWO_LOST,
    "three_adoptions_and_nothing_cut": "ADOPTIONS=3 FOLLOWS=1 " + TWO_LOST,
    "leases_when_the_group_shrinks": SHRINKS,
    "queues_when_the_group_grows": LEASES + "NEW=4 RENEWS=1",
    "tokens_of_three_epochs": "token_epochs",
    "tokens_of_three_clients": "token_epochs CLIENTS=3 ROUNDS=1",
    "mysql_tokens_after_two_events": SWITCHES,
    "mysql_tokens_of_small_epochs_after_dumps": MYSQL + "ROUNDS=1",
    "two_operators_resize_five_nodes": "redlock_resize NODES=5 OPERATORS=2 ADOPTERS=0 GRANTS=2",
}
BROKEN = {
    "phase_2_without_its_condition": "NO_CONDITION " + SMALL,
    "decision_without_a_majority": "NO_MAJORITY " + SMALL,
    "a_node_that_forgot_is_counted": "COUNT_FORGOTTEN " + ONE_LOST,
    "an_expired_fence_reads_as_zero": "FENCE_READS_ZERO " + SMALL,
    "a_node_loses_a_write_and_keeps_its_name": "LOSES_A_WRITE " + ONE_LOST,
    "adoption_without_a_new_epoch": "SAME_EPOCH ADOPTIONS=1 " + ONE_LOST,
    "a_node_goes_back_to_an_older_epoch": "FOLLOWS_BACK FOLLOWS=1 ADOPTIONS=1 " + ONE_LOST,
    "adoption_without_a_mark": "NO_MARK " + THREE_ADOPTIONS,
    "two_adoptions_with_one_epoch": "NUMBERED_EPOCH " + FIVE_NODES,
    "a_quiet_node_hands_its_key_over": LEASES + "FORGETS=1 QUIET_HANDS_OVER",
    "a_break_ends_whatever_it_finds": BREAKS + "BREAKS_ANY",
    "an_adopted_node_is_not_quiet": LEASES + "FORGETS=1 NO_QUIET_TIME",
    "a_new_group_that_is_not_quiet": GROWS + "NO_QUIET_TIME",
    "a_new_group_beside_one_that_is_not_closed": GROWS + "CLOSES_A_MINORITY",
    "a_closed_group_renews": SHRINKS + "CLOSED_RENEWS",
    "operators_that_ignore_what_was_agreed_to": RESIZE + "ADOPTERS=0 IGNORES_AGREEMENTS",
    "an_adoption_opens_a_closed_node": RESIZE + "REOPENS",
    "tokens_read_before_a_node_is_closed": RESIZE + "ADOPTERS=0 READS_BEFORE_CLOSING",
    "an_epoch_is_seen_before_it_is_on_disk": EPOCHS + "NAMES=2 ONE_SERVER NO_CLOCK VISIBLE_EARLY",
    "a_crash_does_not_empty_the_counter": EPOCHS + "LIFE_LOGGED",
    "an_epoch_without_the_clock": EPOCHS + "NO_CLOCK",
    "an_epoch_that_never_ends": EPOCHS + "ROUNDS=3 ENDS_IGNORED",
    "a_token_is_drawn_before_the_lock": EPOCHS + "DRAWS_FIRST",
    "the_epoch_is_in_the_row": "token_epochs ENDS=1 EPOCH_IN_ROW",
    "a_row_is_remembered_beyond_its_session": EPOCHS + "REMEMBERS_LONGER",
    "a_restored_counter_is_believed": EPOCHS + "BELIEVES_RESTORED",
    "mysql_an_epoch_without_the_clock": MYSQL + "EVENTS=1 NO_CLOCK",
    "mysql_an_epoch_is_used_at_once": SWITCHES + "EVENTS=1 NO_WAIT",
    "mysql_a_row_of_another_server_is_believed": SWITCHES + "EVENTS=1 ANY_SERVER",
    "mysql_a_token_is_drawn_before_the_lock": SWITCHES + "EVENTS=1 DRAWS_FIRST",
    "mysql_an_epoch_is_not_compared_with_the_disk": SWITCHES + "BASE_IGNORED",
    "mysql_an_epoch_is_remembered_beyond_its_session": SWITCHES + "EVENTS=1 REMEMBERS_LONGER",
    "mysql_a_row_on_disk_and_a_restart_in_the_same_second": SWITCHES + "EVENTS=1 LIFE_LOGGED SECOND_REPEATS",
    "mysql_an_epoch_is_read_on_a_replica": SWITCHES + "READS_OF_A_REPLICA",
    "mysql_back_to_a_primary_that_lacks_data": SWITCHES + "LACKS_DATA",
    "mysql_a_dump_of_a_replaced_epoch": MYSQL + "SIZE=6 DUMP_OF_THIS_LIFE",
}


def call(folder, *command):
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def search(folder, name, model, bounds):
    """What the checker says of the model within these bounds."""
    quickly = "-O0" if name in BROKEN else "-O1"  # with few states the compiler takes the longest
    for command in ["spin", *bounds, "-a", str(model)], COMPILE + [quickly]:
        status, said = call(folder, *command)
        if status:
            raise RuntimeError("%s: %s" % (" ".join(command), said))
    return call(folder, *CHECK)[1]


def is_exhaustive(said):
    return ("max search depth too small" not in said and "Search not completed" not in said
            and re.search(r"(?m)^Full statespace search", said))


def judge(name, said):
    """None, or what is wrong with it."""
    errors = re.search(r"errors: (\d+)", said)
    if not errors:
        return "the checker did not come to an end"
    if name in BROKEN:
        return None if "assertion violated" in said else "this should have been refuted"
    if errors.group(1) != "0":
        return "refuted"
    return None if is_exhaustive(said) else "not all states were seen"


def model_and_options(bounds):
    words = bounds.split()
    model = words.pop(0) if words[0].islower() else "fenced_redlock"
    return MODELS / (model + ".pml"), ["-D" + bound for bound in words]


def run(name, bounds):
    """What is wrong, and the checker's words."""
    model, options = model_and_options(bounds)
    with tempfile.TemporaryDirectory(prefix="stile-model-") as folder:
        said = search(folder, name, model, options)
        trail = os.path.join(folder, model.name + ".trail")
        if os.path.exists(trail):
            said += call(folder, "spin", *options, "-k", trail, "-B", "-T", str(model))[1]
        return judge(name, said), said


def run_all(cases):
    failed = 0
    print("1..%d" % len(cases), flush=True)
    for number, (name, bounds) in enumerate(cases.items(), 1):
        wrong, said = run(name, bounds)
        states = re.search(r"([\d.e+]+) states, stored", said)
        failed += bool(wrong)
        print("%sok %d - %s: %s states" % ("not " if wrong else "", number, name,
                                           states.group(1) if states else "no"), flush=True)
        if wrong:
            print("# %s\n# %s" % (wrong, said.replace("\n", "\n# ")), flush=True)
    return 1 if failed else 0


def main(args):
    cases = {**RIGHT, **SOAK, **BROKEN}
    if not args:
        return run_all(cases if os.environ.get("STILE_SOAK") else {**RIGHT, **BROKEN})
    if args == ["--list"]:
        for name, bounds in cases.items():
            print("%-48s %s" % (name, bounds))
        return 0
    if len(args) != 1 or args[0] not in cases:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    wrong, said = run(args[0], cases[args[0]])
    print(said)
    print("%s: %s" % (args[0], wrong or ("as expected, refuted" if args[0] in BROKEN else "right")))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
