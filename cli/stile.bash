# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# bash completion for stile(1). Verbs and options are asked of the command itself.

_stile_verbs() {
    "$1" --help 2>/dev/null | sed -n 's/^  stile \([a-z|]*\).*/\1/p' | tr '|' '\n'
}

_stile_options() {
    "$@" --help 2>/dev/null | grep -oE -- '(^|[^[:alnum:]-])--[a-z][a-z-]*' |
        grep -oE -- '--[a-z-]*'
}

# Names that are held or waited for. Not those with a blank: the table does not show where they end.
_stile_names() {
    "$@" 2>/dev/null | sed -n '2,$s/^\([^ ]*\)  .*/\1/p'
}

_stile() {
    local command=$1 words=("${COMP_WORDS[@]}") cword=$COMP_CWORD cur prev verb i engine=()
    cur=${words[cword]} prev=${words[cword - 1]}
    # A colon ends a word for bash; names and URLs are full of them.
    if declare -F _get_comp_words_by_ref >/dev/null; then
        _get_comp_words_by_ref -n : words cword cur prev
    fi
    verb=${words[1]}
    COMPREPLY=()
    if ((cword == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$(_stile_verbs "$command") --help --version --engines" -- "$cur")
        return
    fi
    if [[ $verb == jobs ]] && ((cword == 2)) && [[ $cur != -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'add work ls show retry drop' -- "$cur")
        return
    fi
    for ((i = 2; i < cword; i++)); do
        case ${words[i]} in
        --)
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            else
                mapfile -t COMPREPLY < <(compgen -A command -A file -- "$cur")
            fi
            return
            ;;
        -e | --engine) engine=(-e "${words[i + 1]}") ;;
        esac
    done
    case $prev in
    -e | --engine) mapfile -t COMPREPLY < <(compgen -W local: -- "$cur") ;;
    --state) mapfile -t COMPREPLY < <(compgen -W 'ready delayed claimed dead' -- "$cur") ;;
    --profile) mapfile -t COMPREPLY < <(compgen -W 'default financial cache batch' -- "$cur") ;;
    --wait | --ttl | --hold-at-least | --lock-delay | --grace | --delay | --backoff | --lease | --finish)
        mapfile -t COMPREPLY < <(compgen -W '1s 10s 1m 5m 1h' -- "$cur")
        ;;
    --label | -E | --conflict-exit-code | --slots | --token | --owner | --proclaim | --key | --parallel | --tries) ;;
    *)
        if [[ $cur == -* ]]; then
            i=("$verb")
            [[ $verb == jobs && $cword -gt 2 ]] && i+=("${words[2]}")
            mapfile -t COMPREPLY < <(compgen -W "$(_stile_options "$command" "${i[@]}")" -- "$cur")
        elif [[ $verb == jobs ]]; then
            mapfile -t COMPREPLY < <(
                compgen -W "$(_stile_names "$command" jobs ls "${engine[@]}")" -- "$cur"
            )
        elif [[ $verb != caps && $verb != doctor && $verb != setup ]]; then
            mapfile -t COMPREPLY < <(
                _stile_names "$command" ls "${engine[@]}" | grep -F -- "$cur" |
                    while IFS= read -r i; do [[ $i == "$cur"* ]] && printf '%q\n' "$i"; done
            )
        fi
        ;;
    esac
    if declare -F __ltrim_colon_completions >/dev/null; then
        __ltrim_colon_completions "$cur"
    fi
}

complete -F _stile stile
