package etcdledger

import (
	"net/url"
	"slices"
	"strings"
)

// kind is the kind of a record, and the first element of its key.
type kind string

const (
	// kindNode is the description of a node.
	kindNode kind = "n"
	// kindUse is the count of what is on a node. Every change of the node writes it, its description included.
	kindUse      kind = "u"
	kindCapsule  kind = "c"
	kindGang     kind = "g"
	kindHold     kind = "h"
	kindMark     kind = "m"
	kindProposal kind = "p"
	// kindShare is written by each commit that nominates or lowers a capacity, because either one makes the limit on
	// the nominated share harder to keep. The record is empty; nominations compare its revision.
	kindShare  kind = "s"
	kindBudget kind = "budgets"
	// kindFence stands for a fact that the judgement of a proposal rests on and that no other record holds
	// ([orbit.Footprint].Fences), such as how many members of a group are healthy. The record is empty; its revision
	// says when the fact may last have changed.
	kindFence kind = "fences"
	// kindCovers stands for the set of groups and modules that have budgets. There is no such record: a new budget
	// writes the key gc instead, which every transaction compares. So every proposal that was judged without the new
	// budget is judged again.
	kindCovers kind = "gc"
	// kindLog is the log, which every commit overwrites. A proposal whose outcome any commit may change
	// ([orbit.Footprint].All) compares its revision.
	kindLog kind = "log"
)

// shareID names the only record of its kind.
const shareID = "nominations"

// kinds are all kinds of records.
var kinds = []kind{kindNode, kindUse, kindCapsule, kindGang, kindHold, kindMark, kindProposal, kindShare, kindBudget, kindFence}

// ref names a record.
type ref struct {
	kind kind
	id   string
}

// keys makes the keys of a ledger in etcd. The prefix ends in a slash.
type keys struct{ prefix string }

// of returns the key of a record. The id is escaped, so that it cannot contain a slash.
func (k keys) of(r ref) string {
	switch r.kind {
	case kindCovers:
		return k.gc()
	case kindLog:
		return k.log()
	}
	return k.prefix + string(r.kind) + "/" + url.PathEscape(r.id)
}

// log returns the key that every commit overwrites with its changes.
func (k keys) log() string { return k.prefix + "log" }

// gc returns the key that every deletion of garbage overwrites, and every new budget.
func (k keys) gc() string { return k.prefix + "gc" }

// meta returns the key of the metaRecord.
func (k keys) meta() string { return k.prefix + "meta" }

// term returns the key of a token of refreshes. It is no record: ledgers ignore it, and it goes with an etcd lease.
func (k keys) term(token string) string { return k.prefix + "terms/" + token }

// end returns the end, exclusive, of the range of keys below the prefix.
func (k keys) end() string { return k.prefix[:len(k.prefix)-1] + string(rune('/'+1)) }

// owns reports whether a key belongs to the ledger; other keys below the prefix are ignored.
func (k keys) owns(key string) bool {
	_, ok := k.parse(key)
	return ok || key == k.log() || key == k.gc() || key == k.meta()
}

// parse returns the record with a key; ok is false if no record can have it.
func (k keys) parse(key string) (r ref, ok bool) {
	rest, ok := strings.CutPrefix(key, k.prefix)
	if !ok {
		return ref{}, false
	}
	name, escaped, ok := strings.Cut(rest, "/")
	if !ok {
		return ref{}, false
	}
	id, err := url.PathUnescape(escaped)
	r = ref{kind(name), id}
	if !slices.Contains(kinds, r.kind) {
		return ref{}, false
	}
	return r, err == nil && k.of(r) == key
}
