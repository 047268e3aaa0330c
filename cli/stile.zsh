#compdef stile
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# zsh completion for stile(1). Verbs, options and their values are asked of the command itself.

# The verbs that follow `stile`, or words such as `stile jobs` and `stile crdt set`: [WORDS]
_stile_verbs() {
  $command --help 2>/dev/null | sed -n "s/^  stile ${1:+$1 }\\([a-z|]*\\) .*/\\1/p" | tr '|' '\n' | sort -u
}

# The options of a verb, one in a line: letter, name, kind of value and text, with tabs in between.
_stile_options() {
  $command $verb --help 2>/dev/null | awk '
    function finish() {
      if (name != "") print letter "\t" name "\t" kind "\t" text
      name = ""
    }
    /^  (-., |    )--/ {
      finish()
      letter = substr($0, 3, 1) == "-" ? substr($0, 3, 2) : ""
      text = substr($0, 7)
      match(text, /^--[a-z-]+/)
      name = substr(text, 1, RLENGTH)
      text = substr(text, RLENGTH + 1)
      kind = match(text, /^ [A-Z]+/) ? substr(text, 2, RLENGTH - 1) : ""
      text = substr(text, kind == "" ? 1 : RLENGTH + 1)
      sub(/^ +/, "", text)
      next
    }
    name != "" && /^          / { sub(/^ +/, ""); text = text (text == "" ? "" : " ") $0; next }
    { finish() }
    END { finish() }'
}

# Names that are held or waited for. Not those with a blank: the table does not show where they end.
_stile_names() {
  $command "$@" $engine 2>/dev/null | sed -n '2,$s/^\([^ ]*\)  .*/\1/p'
}

_stile_schemes() {
  $command --engines 2>/dev/null | sed -n '2,$s/.*  //p' | tr ' ' '\n' | sed 's|$|://|; s|^local://$|local:|'
}

# What a value or an argument of this kind can be.
_stile_kind() {
  case $1 in
    URL) compadd -S '' -- ${(f)"$(_stile_schemes)"} ;;
    T) compadd -- 1s 10s 1m 5m 1h ;;
    RATE) compadd -- 1/1s 5/1s 10/1s 100/1m ;;
    PROFILE) compadd -- default financial cache batch ;;
    STATE) compadd -- ready delayed claimed dead ;;
    WORK) compadd -- reads writes adds once leads calls ;;
    WHERE) compadd -- postgres mysql sqlite redis file http cell other ;;
    LEVEL) compadd -- low high ;;
    GOAL) compadd -- efficiency correctness ;;
    DIALECT) compadd -- postgres mysql sqlite ;;
    SCRIPT) compadd -- check del hset key raise reset run set show ;;
    KINDS) compadd -- stop kill cut reset slow break all ;;
    LIST) compadd -- local redis redlock etcd zk postgres mysql ;;
    NAME) compadd -- ${(f)"$(_stile_names ls)"} ;;
    QUEUE) compadd -- ${(f)"$(_stile_names jobs ls)"} ;;
    KEY) compadd -- ${(f)"$(_stile_names cell ls)"} ;;
    RESULT) compadd -- ${${(f)"$(_stile_names cell ls once:)"}#once:} ;;
    ENGINE) compadd -- ${="$($command sim --help 2>/dev/null | sed -n 's/^ENGINE is one of: //p')"} ;;
    FILE | PATH) [[ $PREFIX == -* ]] || _files ;; # _files would hide the options
    *) _message $1 ;;
  esac
}

# The same options, as _arguments expects them.
_stile_specs() {
  local line fields text value both
  for line in ${(f)"$(_stile_options)"}; do
    fields=("${(@ps:\t:)line}")
    text="[${fields[4]//(#m)[\[\]\\]/\\$MATCH}]"
    value=${fields[3]:+":$fields[3]: _stile_kind $fields[3]"}
    both="($fields[1] $fields[2])"
    [[ -n $fields[1] ]] && specs+=("$both$fields[1]${fields[3]:++}$text$value")
    specs+=("$both$fields[2]${fields[3]:+=}$text$value")
  done
}

_stile_operands() {
  case "$verb" in
    advise | sim | play) ;;
    run) specs+=('*:NAME: _stile_kind NAME') ;;
    caps | doctor | setup | torture) specs+=('1:URL: _stile_kind URL') ;;
    'jobs add') specs+=('1:QUEUE: _stile_kind QUEUE' '*:FILE: _stile_kind FILE') ;;
    once) specs+=('1:KEY: _stile_kind RESULT') ;;
    cell*) specs+=('1:KEY: _stile_kind KEY') ;;
    crdt*) specs+=('1:KEY: _stile_kind KEY' '*:ELEMENT: _stile_kind ELEMENT') ;;
    file*) specs+=('1:PATH: _stile_kind PATH') ;;
    guard*) specs+=('1:URL: _stile_kind URL' '*:RESOURCE: _stile_kind RESOURCE') ;;
    jobs*) specs+=('1:QUEUE: _stile_kind QUEUE' '*:ID: _stile_kind ID') ;;
    *) specs+=('1:NAME: _stile_kind NAME') ;;
  esac
}

_stile() {
  emulate -L zsh
  setopt extended_glob
  local command=${(Q)words[1]} i
  local -a verb further engine specs
  if ((CURRENT == 2)); then
    compadd -- ${(f)"$(_stile_verbs)"} --help --version --engines
    return
  fi
  verb=("${words[2]}")
  while [[ $verb[-1] == [a-z]## ]]; do
    further=(${(f)"$(_stile_verbs "$verb")"})
    (($#further)) || break
    if ((CURRENT == $#verb + 2)); then
      [[ $PREFIX == -* ]] && break
      compadd -- $further
      return
    fi
    verb+=("${words[$#verb + 2]}")
  done
  for ((i = 3; i < CURRENT; i++)); do
    case ${words[i]} in
      --)
        shift $i words
        ((CURRENT -= i))
        _normal
        return
        ;;
      -e | --engine) engine=(-e "${(Q)words[i + 1]}") ;;
      --engine=*) engine=(-e "${(Q)words[i]#*=}") ;;
    esac
  done
  _stile_specs
  _stile_operands
  shift $#verb words
  ((CURRENT -= $#verb))
  _arguments -s $specs
}

_stile "$@"
