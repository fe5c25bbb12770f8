"""Shell completion scripts for the command lines of stompkit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stompkit._commands.tools.outline import Option, Outline, outline

__all__ = ["script"]


def script(shell: str) -> str:
    """Return the script for ``bash``, ``zsh`` or ``fish``."""
    made = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return "\n".join(made(outline())) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _words(each: Outline) -> list[str]:
    """Return the possible words after a command, except files."""
    found = [inner.words[-1] for inner in each.commands]
    found += [name for option in each.options for name in option.names]
    for argument in each.arguments:
        found += argument.choices
    return found


def _takes_files(each: Outline) -> bool:
    return any(argument.is_file for argument in each.arguments)


# bash. The script supports version 3.2 and later, without the package bash-completion.


def _bash(root: Outline) -> Iterator[str]:
    yield "# Completion of stompkit for bash, made by `stompkit completion bash`."
    yield "_stompkit() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"'
    yield "    local place='' index words='' files=''"
    yield "    COMPREPLY=()"
    yield "    for ((index = 1; index < COMP_CWORD; index++)); do"
    yield '        case "$place ${COMP_WORDS[index]}" in'
    for each in root.all():
        if each.words:
            pattern = _quoted(f"{' '.join(each.words[:-1])} {each.words[-1]}")
            yield f"            {pattern}) place={_quoted(' '.join(each.words))} ;;"
    yield "        esac"
    yield "    done"
    yield '    case "$place $before" in'
    for each in root.all():
        for option in each.options:
            if option.metavar:
                names = "|".join(_quoted(f"{' '.join(each.words)} {name}") for name in option.names)
                yield f"        {names}) {_bash_value(option)} return ;;"
    yield "    esac"
    yield '    case "$place" in'
    for each in root.all():
        files = " files=yes" if _takes_files(each) else ""
        place = _quoted(" ".join(each.words))
        yield f"        {place}) words={_quoted(' '.join(_words(each)))}{files} ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "    if [[ $files && $word != -* ]]; then"
    yield '        COMPREPLY+=($(compgen -f -- "$word"))'
    yield "    fi"
    yield "}"
    yield "complete -o filenames -o bashdefault -F _stompkit stompkit"


def _bash_value(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W {_quoted(" ".join(option.choices))} -- "$word"));'
    return 'COMPREPLY=($(compgen -f -- "$word"));' if option.is_file else ""


# zsh.


def _zsh(root: Outline) -> Iterator[str]:
    yield "#compdef stompkit"
    yield "# Completion of stompkit for zsh, made by `stompkit completion zsh`."
    for each in root.all():
        yield from _zsh_function(each)
    yield 'if [ "$funcstack[1]" = _stompkit ]; then'
    yield '    _stompkit "$@"'
    yield "else"
    yield "    compdef _stompkit stompkit"
    yield "fi"


def _zsh_name(each: Outline) -> str:
    return "_".join(["_stompkit", *(re.sub(r"\W", "_", word) for word in each.words)])


def _zsh_function(each: Outline) -> Iterator[str]:
    yield f"{_zsh_name(each)}() {{"
    yield "    local context state state_descr line"
    yield "    typeset -A opt_args"
    specs = [spec for option in each.options for spec in _zsh_options(option)]
    if each.commands:
        specs += [_quoted("1: :->command"), _quoted("*:: :->arguments")]
    else:
        specs += [
            _quoted(f"*:{_zsh_text(argument.metavar)}:{_zsh_action(argument)}")
            for argument in each.arguments[-1:]
        ]
    yield "    _arguments -C " + " \\\n        ".join(specs or ["'*: :'"])
    if each.commands:
        yield "    case $state in"
        yield "        command)"
        yield "            local -a commands=("
        for inner in each.commands:
            yield f"                {_quoted(f'{inner.words[-1]}:{inner.help}')}"
        yield "            )"
        yield "            _describe command commands ;;"
        yield "        arguments)"
        yield "            case $line[1] in"
        for inner in each.commands:
            yield f"                {inner.words[-1]}) {_zsh_name(inner)} ;;"
        yield "            esac ;;"
        yield "    esac"
    yield "}"


def _zsh_text(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def _zsh_options(option: Option) -> Iterator[str]:
    value = f":{_zsh_text(option.metavar)}:{_zsh_action(option)}" if option.metavar else ""
    for name in option.names:
        # The command itself checks if an option can be repeated.
        yield _quoted(f"*{name}[{_zsh_text(option.help)}]{value}")


def _zsh_action(option: Option) -> str:
    if option.choices:
        return f"({' '.join(option.choices)})"
    return "_files" if option.is_file else " "


# fish.


def _fish(root: Outline) -> Iterator[str]:
    yield "# Completion of stompkit for fish, made by `stompkit completion fish`."
    yield "function __stompkit_at"
    yield "    set -l words (commandline -opc)[2..]"
    yield "    set -l place"
    yield "    for word in $words"
    yield '        contains -- "$place $word" $__stompkit_places; and set place "$place $word"'
    yield "    end"
    yield '    test "$place" = "$argv[1]"'
    yield "end"
    places = [_fish_place(each) for each in root.all() if each.words]
    yield f"set -g __stompkit_places {' '.join(map(_fish_quoted, places))}"
    yield "complete -c stompkit -f"
    for each in root.all():
        condition = f"__stompkit_at {_fish_quoted(_fish_place(each))}"
        at = f"complete -c stompkit -n {_fish_quoted(condition)}"
        for inner in each.commands:
            yield f"{at} -a {inner.words[-1]} -d {_fish_quoted(inner.help)}"
        for option in each.options:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            yield f"{at} {names} -d {_fish_quoted(option.help)}{_fish_value(option)}"
        for argument in each.arguments:
            if argument.choices:
                yield f"{at} -a {_fish_quoted(' '.join(argument.choices))}"
        if _takes_files(each):
            yield f"{at} -F"


def _fish_place(each: Outline) -> str:
    return "".join(f" {word}" for word in each.words)


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _fish_value(option: Option) -> str:
    if not option.metavar:
        return ""
    if option.choices:
        return f" -x -a {_fish_quoted(' '.join(option.choices))}"
    return " -r -F" if option.is_file else " -x"
