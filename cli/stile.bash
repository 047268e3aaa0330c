# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# bash completion for stile(1). Verbs, options and their values are asked of the command itself.

# What can follow `stile`, or words such as `stile jobs` and `stile crdt set`: stile [WORDS]
_stile_verbs() {
    "$1" --help 2>/dev/null | sed -n "s/^  stile ${2:+$2 }\\([a-z|]*\\) .*/\\1/p" | tr '|' '\n' | sort -u
}

_stile_options() {
    "$@" --help 2>/dev/null | sed -nE 's/^  (-., |    )(--[a-z-]+).*/\2/p'
}

# The kind of value that an option takes, as URL; nothing for one that takes none. stile VERB... OPTION
_stile_value() {
    local option=${!#}
    "${@:1:$#-1}" --help 2>/dev/null | sed -nE "s/^  (-., | *)$option(, --[a-z-]+)? ([A-Z]+)( .*|\$)/\\3/p"
}

_stile_schemes() {
    "$1" --engines 2>/dev/null | sed -n '2,$s/.*  //p' | tr ' ' '\n' | sed 's|$|://|; s|^local://$|local:|'
}

# Names that are held or waited for. Not those with a blank: the table does not show where they end.
_stile_names() {
    "$@" 2>/dev/null | sed -n '2,$s/^\([^ ]*\)  .*/\1/p'
}

# Those lines of stdin that begin with $1, quoted.
_stile_beginning() {
    local line
    while IFS= read -r line; do [[ $line == "$1"* ]] && printf '%q\n' "$line"; done
}

_stile_candidates() {
    case $1 in
    URL) _stile_schemes "$command" ;;
    T) printf '%s\n' 1s 10s 1m 5m 1h ;;
    RATE) printf '%s\n' 1/1s 5/1s 10/1s 100/1m ;;
    PROFILE) printf '%s\n' default financial cache batch ;;
    STATE) printf '%s\n' ready delayed claimed dead ;;
    WORK) printf '%s\n' reads writes adds once leads calls ;;
    WHERE) printf '%s\n' postgres mysql sqlite redis file http cell other ;;
    LEVEL) printf '%s\n' low high ;;
    GOAL) printf '%s\n' efficiency correctness ;;
    DIALECT) printf '%s\n' postgres mysql sqlite ;;
    SCRIPT) printf '%s\n' check del hset key raise reset run set show ;;
    KINDS) printf '%s\n' stop kill cut reset slow break all ;;
    LIST) printf '%s\n' local redis redlock etcd zk postgres mysql ;;
    QUEUE) _stile_names "$command" jobs ls "${engine[@]}" ;;
    KEY) _stile_names "$command" cell ls "${engine[@]}" ;;
    RESULT) _stile_names "$command" cell ls "${engine[@]}" once: | sed 's/^once://' ;;
    NAME) _stile_names "$command" ls "${engine[@]}" ;;
    ENGINE) "$command" sim --help 2>/dev/null | sed -n 's/^ENGINE is one of: //p' | tr ' ' '\n' ;;
    FILE | PATH) compgen -A file -- "$cur" ;;
    esac
}

# What an argument of the verb is.
_stile_operand() {
    case $1 in
    jobs) echo QUEUE ;;
    cell | crdt) echo KEY ;;
    once) echo RESULT ;;
    file) echo PATH ;;
    caps | doctor | setup | guard | torture) echo URL ;;
    advise | sim | play) ;;
    *) echo NAME ;;
    esac
}

_stile_command() {
    if declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    else
        mapfile -t COMPREPLY < <(compgen -A command -A file -- "$cur")
    fi
}

_stile() {
    local command=$1 words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur prev verb further i kind engine=()
    cur=${words[cword]} prev=${words[cword - 1]}
    # A colon ends a word for bash; names and URLs are full of them.
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n : words cword cur prev
    fi
    # So does the = of --option=value.
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${words[cword - 2]}
    fi
    COMPREPLY=()
    if ((cword == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$(_stile_verbs "$command") --help --version --engines" -- "$cur")
        return
    fi
    verb=("${words[1]}")
    while [[ ${verb[-1]} =~ ^[a-z]+$ ]]; do
        further=$(_stile_verbs "$command" "${verb[*]}")
        [[ -n $further ]] || break
        if ((cword == ${#verb[@]} + 1)); then
            [[ $cur == -* ]] && break
            mapfile -t COMPREPLY < <(compgen -W "$further" -- "$cur")
            return
        fi
        verb+=("${words[${#verb[@]} + 1]}")
    done
    for ((i = 2; i < cword; i++)); do
        case ${words[i]} in
        --)
            _stile_command $((i + 1))
            return
            ;;
        -e | --engine)
            [[ ${words[i + 1]} == = ]] && ((i++))
            engine=(-e "${words[i + 1]}")
            ;;
        esac
    done
    kind=
    if [[ $prev =~ ^--?[[:alnum:]-]+$ ]]; then
        kind=$(_stile_value "$command" "${verb[@]}" "$prev")
    fi
    if [[ -z $kind && $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_stile_options "$command" "${verb[@]}")" -- "$cur")
    elif [[ -z $kind && ${verb[*]} == 'jobs add' ]] && ((cword > 3)) && [[ $prev != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -A file -- "$cur")
    else
        mapfile -t COMPREPLY < <(
            _stile_candidates "${kind:-$(_stile_operand "${verb[0]}")}" | _stile_beginning "$cur"
        )
    fi
    if declare -F __ltrim_colon_completions >/dev/null; then
        __ltrim_colon_completions "$cur"
    fi
}

complete -F _stile stile
