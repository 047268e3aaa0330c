# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# fish completion for stile(1). Verbs, options and their values are asked of the command itself.

# The verbs that follow `stile`, or words such as `stile jobs` and `stile crdt set`: __stile_verbs COMMAND [WORDS]
function __stile_verbs
    set -l group (string join '' -- $argv[2..-1] ' ' | string trim -l)
    $argv[1] --help 2>/dev/null | string replace -rf "^  stile $group([a-z|]+) .*" '$1' | string split '|' | sort -u
end

# The options of a verb, with what they do: __stile_options COMMAND VERB...
function __stile_options
    $argv --help 2>/dev/null | awk '
        function finish() {
            if (name != "") print name "\t" text
            name = ""
        }
        /^  (-., |    )--/ {
            finish()
            text = substr($0, 7)
            match(text, /^--[a-z-]+/)
            name = substr(text, 1, RLENGTH)
            text = substr(text, RLENGTH + 1)
            sub(/^( [A-Z]+)? */, "", text)
            next
        }
        name != "" && /^          / { sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0; next }
        { finish() }
        END { finish() }'
end

# The kind of value that an option takes, as URL: __stile_value OPTION COMMAND VERB...
function __stile_value
    string match -rq '^--?[[:alnum:]-]+$' -- $argv[1]
    and $argv[2..-1] --help 2>/dev/null |
        string replace -rf "^  (?:-., | *)$argv[1](?:, --[a-z-]+)? ([A-Z]+)(?: .*)?\$" '$1'
end

# Names that are held or waited for. Not those with a blank: the table does not show where they end.
function __stile_names
    $argv 2>/dev/null | string replace -rf '^([^ ]+)  .*' '$1' | tail -n +2
end

# What a value or an argument of this kind can be: __stile_kind KIND COMMAND [-e URL]
function __stile_kind
    switch $argv[1]
        case URL
            $argv[2] --engines 2>/dev/null | tail -n +2 | string replace -r '.*  ' '' | string split ' ' |
                string replace -r '$' '://' | string replace -r '^local://$' 'local:'
        case T
            printf '%s\n' 1s 10s 1m 5m 1h
        case RATE
            printf '%s\n' 1/1s 5/1s 10/1s 100/1m
        case PROFILE
            printf '%s\n' default financial cache batch
        case STATE
            printf '%s\n' ready delayed claimed dead
        case WORK
            printf '%s\n' reads writes adds once leads calls
        case WHERE
            printf '%s\n' postgres mysql sqlite redis file http cell other
        case LEVEL
            printf '%s\n' low high
        case GOAL
            printf '%s\n' efficiency correctness
        case DIALECT
            printf '%s\n' postgres mysql sqlite
        case SCRIPT
            printf '%s\n' check del hset key raise reset run set show
        case KINDS
            printf '%s\n' stop kill cut reset slow break all
        case LIST
            printf '%s\n' local redis redlock etcd zk postgres mysql
        case NAME
            __stile_names $argv[2] ls $argv[3..-1]
        case QUEUE
            __stile_names $argv[2] jobs ls $argv[3..-1]
        case KEY
            __stile_names $argv[2] cell ls $argv[3..-1]
        case RESULT
            __stile_names $argv[2] cell ls $argv[3..-1] once: | string replace -r '^once:' ''
        case ENGINE
            $argv[2] sim --help 2>/dev/null | string replace -rf '^ENGINE is one of: ' '' | string split ' '
        case FILE PATH
            __fish_complete_path (commandline -ct)
    end
end

# What the next argument is: __stile_operand N_ARGUMENTS VERB...
function __stile_operand
    switch "$argv[2..-1]"
        case advise sim play
        case caps doctor setup torture
            echo URL
        case 'jobs add'
            test $argv[1] -gt 0; and echo FILE; or echo QUEUE
        case once
            test $argv[1] -gt 0; or echo RESULT
        case 'cell *' 'crdt *'
            test $argv[1] -gt 0; or echo KEY
        case 'file *'
            test $argv[1] -gt 0; or echo PATH
        case 'guard *'
            test $argv[1] -gt 0; or echo URL
        case 'jobs *'
            test $argv[1] -gt 0; or echo QUEUE
        case '*'
            echo NAME
    end
end

function __stile_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l command $words[1]
    set -e words[1]
    type -q $command; or return # fish reports a command that is not there, whatever is redirected
    if not set -q words[1]
        __stile_verbs $command
        printf '%s\n' --help --version --engines
        return
    end
    set -l verb $words[1]
    set -e words[1]
    while string match -rq '^[a-z]+$' -- $verb[-1]
        set -l further (__stile_verbs $command "$verb")
        set -q further[1]; or break
        if set -q words[1]
            set -a verb $words[1]
            set -e words[1]
        else if string match -q -- '-*' $current
            break
        else
            printf '%s\n' $further
            return
        end
    end
    if set -l at (contains -i -- -- $words)
        set -e words[1..$at]
        complete -C (string join ' ' -- (string escape -- $words) $current)
        return
    end
    set -l engine
    set -l arguments 0
    set -l kind
    for word in $words
        if test "$kind" != ''
            test "$kind" = URL; and set engine -e $word
            set kind
        else if string match -q -- '--engine=*' $word
            set engine -e (string replace -- --engine= '' $word)
        else if string match -q -- '-*' $word
            set kind (__stile_value $word $command $verb)
        else
            set arguments (math $arguments + 1)
        end
    end
    set -l option (string match -r -- '^--[a-z-]+(?==)' $current)
    if test -n "$kind"
        __stile_kind $kind $command $engine
    else if test -n "$option"
        __stile_kind (__stile_value $option $command $verb) $command $engine | string replace -r '^' -- $option=
    else if string match -q -- '-*' $current
        __stile_options $command $verb
    else
        __stile_kind (__stile_operand $arguments $verb) $command $engine
    end
end

complete -c stile -f -a '(__stile_complete)'
