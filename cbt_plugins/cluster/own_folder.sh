#!/bin/sh
# A function for programs on nodes: use a folder only if nobody but root and us can write it or put another in its place.
#   own_folder PATH make|look [REMEDY]
# Each folder on the way must belong to root or to us and be closed to the writing of others, or be sticky as /tmp is; the
# last one must be ours. `make` makes what is missing and closes the last one altogether, `look` changes nothing.
# Status 0: PATH can be used; 3: it is missing; 77: refused, with the reason and the remedy; else: it cannot be made.
#
# It goes from the top down: what was seen to be closed cannot be changed by others while we look at what is in it. So no
# link is followed that others can have made, and paths may be used after the check.
# No single quotes: each level of quoting would make five characters of one.
own_folder() (
  action=$2 remedy=${3:-"remove it as root, or set cluster: tmp_dir: to a folder that only you can write"}
  us=$(id -u) given=$1 path="" next=$1 rest=$1/ uid="" open="" turns=0
  refuse() {
    echo "$next $1: others could replace what runs there; $remedy" >&2
    exit 77
  }
  case $1 in /*) ;; *) refuse "is not an absolute path" ;; esac
  while [ -n "$rest" ]; do
    turns=$((turns + 1))
    [ "$turns" -le 100 ] || { next=$given; refuse "leads round in links, or is changed all the time"; }
    part=${rest%%/*} rest=${rest#*/}
    case $part in
      "" | .) continue ;;
      ..) rest=${path%/*}/$rest path="" open=""; continue ;;
    esac
    next=$path/$part
    # shellcheck disable=SC2046 # words are wanted: owner, mode, type
    set -- $(LC_ALL=C stat -c "%u %a %F" -- "$next" 2>/dev/null)
    if [ $# = 0 ]; then
      [ -e "$next" ] || [ -L "$next" ] || [ "$action" = make ] || exit 3
      mode=755
      [ -n "$rest" ] || mode=700
      # when others make it at this moment, the next look shows it
      mkdir -m "$mode" -- "$next" 2>/dev/null || [ -e "$next" ] || [ -L "$next" ] || mkdir -- "$next" || exit 1
      rest=$part/$rest
      continue
    fi
    uid=$1 mode=0$2
    shift 2
    [ "$uid" = 0 ] || [ "$uid" = "$us" ] || refuse "belongs to user $(stat -c %U -- "$next")"
    if [ "$*" = "symbolic link" ]; then
      # also one of root"s: others can have linked it from elsewhere
      [ -z "$open" ] || refuse "is a link where $open can make one"
      rest=$(readlink -- "$next")/$rest
      case $rest in /*) path="" open="" ;; esac
      continue
    fi
    [ "$*" = directory ] || { echo "$next is not a folder; $remedy" >&2; exit 77; }
    by=""
    if [ $((mode & 02)) != 0 ]; then
      by=everybody
    elif [ $((mode & 020)) != 0 ]; then
      by=$(stat -c %G -- "$next")
      # a user"s own group, without other members, is the user
      [ "$by" = "$(stat -c %U -- "$next")" ] && case $(getent group "$by") in *: | *:"$by") by="" ;; esac
      by=${by:+group $by}
    fi
    path=$next open=""
    [ $((mode & 01000)) = 0 ] || { open=$by by=""; }
    [ -z "$by" ] || refuse "can be written by $by"
  done
  [ -z "$open" ] || refuse "can be written by $open"
  [ "$uid" = "$us" ] || refuse "belongs to user $(stat -c %U -- "$next")"
  [ "$action" != make ] || [ $((mode & 077)) = 0 ] || chmod 700 -- "$path"
)
