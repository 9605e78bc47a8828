package etcdledger

import (
	"encoding/json"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// pack is one transaction being filled with proposals that hold one after another.
//
// Invariants: state is base after all proposals taken so far, at a revision that stands for the transaction's.
// Accesses are the records that any of them has to do with; values are those that it writes, as they are in state.
// All proposals share the revision, so what stands in base and what in the pack is told apart by it.
type pack struct {
	keys keys
	base *orbit.State
	// What base is at, as etcd counts: nothing compared may have changed after it.
	pos      int64
	limits   packLimits
	state    *orbit.State
	accesses accessSet
	values   map[ref][]byte
	commits  []json.RawMessage
	requests []*request
	seq      int
	bytes    int
	// A proposal without an id is in it: a second one could not be told from it.
	nameless bool
	// A proposal has been turned away for want of room.
	full bool
	// That of all its requests.
	route route
}

// idle reports whether all requests have been answered.
func (b *pack) idle() bool {
	for _, t := range b.requests {
		if !t.isAnswered() {
			return false
		}
	}
	return true
}

// packLimits are what the server takes.
type packLimits struct{ ops, bytes int }

// errFull: the proposal does not go into this pack; it may into the next.
var errFull = errors.New("the transaction is full")

// errAgain: the proposal is in the pack already, sent by another call.
var errAgain = errors.New("the proposal is in the transaction")

// newPack returns an empty pack on a state.
func newPack(k keys, base *orbit.State, pos int64, limits packLimits) *pack {
	return &pack{keys: k, base: base, pos: pos, limits: limits, state: base, accesses: accessSet{}, values: map[ref][]byte{}}
}

// add takes a proposal that holds on the pack's state, with the nodes that it touches there and its records. It returns
// errFull where there is no room for it. On an error the pack is as before.
func (b *pack) add(p *orbit.Proposal, touched []orbit.NodeID, accesses accessSet) error {
	if len(touched) == 0 {
		return errAgain
	}
	if b.nameless && p.ID.IsZero() {
		return errFull
	}
	if err := b.roomFor(accesses); err != nil {
		return err
	}
	changes := b.changes(p, touched)
	next, err := b.state.Apply(changes)
	if err != nil {
		return err
	}
	values, bytes, err := b.encode(next, changes, accesses)
	if err != nil {
		return err
	}
	text, err := json.Marshal(commitOf(changes))
	if err != nil {
		return invalid("cannot be written: %v", err)
	}
	bytes += len(text) - b.replaced(values)
	if b.bytes+bytes > b.limits.bytes {
		return b.tooLarge(bytes)
	}
	b.take(p, next, accesses, values, text, bytes)
	return nil
}

// take makes what add has found part of the pack.
func (b *pack) take(p *orbit.Proposal, next *orbit.State, accesses accessSet, values map[ref][]byte, text []byte, bytes int) {
	b.state = next
	b.accesses.merge(accesses)
	for r, value := range values {
		b.values[r] = value
	}
	b.commits = append(b.commits, text)
	b.seq += len(p.Do)
	b.bytes += bytes
	b.nameless = b.nameless || p.ID.IsZero()
}

// roomFor reports whether the records of a proposal fit beside those that are in the pack.
func (b *pack) roomFor(accesses accessSet) error {
	compares, puts := operations(b.accesses)
	for r, a := range accesses {
		was, known := b.accesses[r]
		compares += count(!known && r.kind != kindNode)
		puts += count(a == writes && (!known || was == reads))
	}
	most := max(compares, puts)
	if most <= b.limits.ops {
		return nil
	}
	if len(b.commits) > 0 {
		return errFull
	}
	return invalid("it takes %d operations in one transaction of etcd, and the server takes %d: divide it, or raise the server's --max-txn-ops and Options.MaxOps",
		most, b.limits.ops)
}

// operations returns how many reads, where a compare fails, and writes a transaction on these records has: gc and
// the log are read besides what is compared, and the log is written.
func operations(accesses accessSet) (compares, puts int) {
	compares, puts = 2, 1
	for r, a := range accesses {
		compares += count(r.kind != kindNode)
		puts += count(a == writes)
	}
	return compares, puts
}

// count makes a number of a condition.
func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tooLarge refuses what would make the request larger than the server takes.
func (b *pack) tooLarge(bytes int) error {
	if len(b.commits) > 0 {
		return errFull
	}
	return invalid("it takes about %d bytes in one transaction of etcd, and the server takes %d: divide it, or raise the server's --max-request-bytes and Options.MaxBytes",
		bytes, b.limits.bytes)
}

// invalid returns a rejection for what this ledger cannot take.
func invalid(format string, args ...any) error {
	return &orbit.Rejection{Kind: orbit.ErrInvalid, Do: -1, Reason: fmt.Sprintf(format, args...)}
}

// changes returns the proposal as history at the pack's revision.
func (b *pack) changes(p *orbit.Proposal, nodes []orbit.NodeID) []orbit.Change {
	out := make([]orbit.Change, len(p.Do))
	for i, c := range p.Do {
		out[i] = orbit.Change{Revision: b.base.Revision() + 1, Seq: b.seq + i, ID: p.ID, Do: c, Node: nodes[i]}
	}
	return out
}

// encode returns the values of the records that are written, as they are in next, and how many bytes they take with
// their keys and compares.
func (b *pack) encode(next *orbit.State, changes []orbit.Change, accesses accessSet) (values map[ref][]byte, bytes int, err error) {
	e := encoder{state: next, now: b.base.Revision() + 1, changes: changes}
	values = make(map[ref][]byte, len(accesses))
	for r, a := range accesses {
		bytes += 3 * (len(b.keys.prefix) + 3*len(r.id) + 32) // compared, read if that fails, written
		if a == writes {
			if r.kind == kindNode && next.Node(orbit.NodeID(r.id)) == nil {
				values[r] = nil // is deleted
				continue
			}
			values[r] = e.record(r)
			bytes += len(values[r])
		}
	}
	if e.err != nil {
		return nil, 0, invalid("cannot be written: %v", e.err)
	}
	return values, bytes, nil
}

// replaced returns how many bytes of the pack these values take the place of.
func (b *pack) replaced(values map[ref][]byte) (n int) {
	for r := range values {
		n += len(b.values[r])
	}
	return n
}

// transaction returns the transaction to be sent; its log entry names the process that sends it.
func (b *pack) transaction(by string, number uint64) (compares []clientv3.Cmp, then, otherwise []clientv3.Op, err error) {
	log, err := json.Marshal(struct { // an entry whose commits are written already
		stamp
		By      string            `json:"by"`
		Number  uint64            `json:"number"`
		Commits []json.RawMessage `json:"commits"`
	}{written, by, number, b.commits})
	if err != nil {
		return nil, nil, nil, err
	}
	guard := func(key string) {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "<", b.pos+1))
		otherwise = append(otherwise, clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	guard(b.keys.gc())
	for r := range b.accesses {
		if r.kind != kindNode {
			guard(b.keys.of(r))
		}
	}
	otherwise = append(otherwise, clientv3.OpGet(b.keys.log(), clientv3.WithKeysOnly()))
	then = append(then, clientv3.OpPut(b.keys.log(), string(log)))
	for r, value := range b.values {
		if value == nil {
			then = append(then, clientv3.OpDelete(b.keys.of(r)))
			continue
		}
		then = append(then, clientv3.OpPut(b.keys.of(r), string(value)))
	}
	return compares, then, otherwise, nil
}
