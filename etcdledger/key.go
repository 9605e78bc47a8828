package etcdledger

import (
	"net/url"
	"slices"
	"strings"
)

// kind is what a record is about; it is the first element of its key.
type kind string

const (
	// A node's description.
	kindNode kind = "n"
	// What is used of a node. Every change of a node writes it, so that one compare guards both.
	kindUse      kind = "u"
	kindCapsule  kind = "c"
	kindGang     kind = "g"
	kindHold     kind = "h"
	kindMark     kind = "m"
	kindProposal kind = "p"
	// When the share of nominations was last made harder to keep. It says nothing: its revision does.
	kindShare kind = "s"
)

// shareID names the only record of its kind.
const shareID = "nominations"

// kinds are all there are.
var kinds = []kind{kindNode, kindUse, kindCapsule, kindGang, kindHold, kindMark, kindProposal, kindShare}

// ref names a record.
type ref struct {
	kind kind
	id   string
}

// keys makes etcd's keys below a prefix that ends in a slash.
type keys struct{ prefix string }

// of returns the key of a record. The id is escaped, so that no id is another key's prefix or leaves its own.
func (k keys) of(r ref) string { return k.prefix + string(r.kind) + "/" + url.PathEscape(r.id) }

// log is the key that every commit overwrites with what it has changed.
func (k keys) log() string { return k.prefix + "log" }

// gc is the key that every deletion of garbage overwrites.
func (k keys) gc() string { return k.prefix + "gc" }

// meta is the key of what all processes agree on.
func (k keys) meta() string { return k.prefix + "meta" }

// end is the first key behind the prefix.
func (k keys) end() string { return k.prefix[:len(k.prefix)-1] + string(rune('/'+1)) }

// owns reports whether a key is one of the ledger's; others below the prefix are ignored.
func (k keys) owns(key string) bool {
	_, ok := k.parse(key)
	return ok || key == k.log() || key == k.gc() || key == k.meta()
}

// parse returns the record that a key is of; not ok: of none.
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
