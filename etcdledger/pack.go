package etcdledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// pack is one transaction in the making. It holds proposals that hold one after another.
//
// Invariants: state is base after all proposals so far. Its revision is one above that of base and stands for the revision
// of the transaction, which only etcd knows. Accesses are the records that any of the proposals reads or writes. Values has
// the written records as they are in state.
type pack struct {
	keys keys
	base *orbit.State
	// pos is etcd's revision of base. The transaction compares that its records have not changed after it.
	pos      int64
	limits   packLimits
	state    *orbit.State
	accesses accessSet
	values   map[ref][]byte
	commits  []json.RawMessage
	requests []*request
	seq      int
	bytes    int
	// nameless says that a proposal without an id is in the pack. There is at most one, because the changes of two could not
	// be told apart.
	nameless bool
	// full says that the pack takes no more requests.
	full bool
	// route is the route that all requests of the pack have.
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

// packLimits are the operations and bytes that the server accepts.
type packLimits struct{ ops, bytes int }

// errFull means that the proposal does not fit into this pack, and may fit into the next one.
var errFull = errors.New("the transaction is full")

// errAgain means that the pack has the proposal already, from another call.
var errAgain = errors.New("the proposal is in the transaction")

// newPack returns an empty pack on a state.
func newPack(k keys, base *orbit.State, pos int64, limits packLimits) *pack {
	return &pack{keys: k, base: base, pos: pos, limits: limits, state: base, accesses: accessSet{}, values: map[ref][]byte{}}
}

// add adds a proposal that holds after all others in the pack. The caller passes the node of each commitment (touched)
// and the records that the proposal reads and writes (accesses), as the footprint on the pack's state has them. Add
// returns errFull if another pack has to be tried, and errAgain if the pack has the proposal already. After an error
// the pack is unchanged.
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
	if slices.ContainsFunc(p.Do, makesWay) { // a victim may be spared, and the log must not have its eviction
		reduced, err := b.state.Judge(*p)
		if err != nil {
			return err
		}
		p = &reduced
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
		return invalid("it cannot be written as JSON: %v", err)
	}
	bytes += len(text) - b.replaced(values)
	if b.bytes+bytes > b.limits.bytes {
		return b.tooLarge(bytes)
	}
	b.take(p, next, accesses, values, text, bytes)
	return nil
}

// makesWay reports whether a commitment evicts a capsule for a named newcomer. The ledger spares such a victim if the
// newcomer fits beside it.
func makesWay(c orbit.Commitment) bool {
	e, ok := c.(orbit.Evict)
	return ok && (e.For != "" || e.ForGang != "")
}

// take makes a proposal that add has judged part of the pack.
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

// roomFor returns an error if the operations for these records and for those in the pack are more than the server accepts.
func (b *pack) roomFor(accesses accessSet) error {
	compares, written := operations(b.accesses)
	for r, a := range accesses {
		was := b.accesses[r]
		compares += count(r.kind != kindNode && a&^was&reads != 0)
		written += count(a&^was&puts != 0)
	}
	most := max(compares, written)
	if most <= b.limits.ops {
		return nil
	}
	if len(b.commits) > 0 {
		return errFull
	}
	return invalid("it takes %d operations in one transaction of etcd, and the server takes %d: divide it, or raise the server's --max-txn-ops and Options.MaxOps",
		most, b.limits.ops)
}

// operations returns the lengths of the two longest lists of a transaction on these records. One list has the reads
// after a failed compare: every compared record, the key gc and the log. The other has the writes: every put record, and
// the log is among these. The compares are one fewer than the reads.
func operations(accesses accessSet) (compares, written int) {
	compares = 2
	for r, a := range accesses {
		compares += count(r.kind != kindNode && a&reads != 0)
		written += count(a&puts != 0)
	}
	return compares, written
}

// count returns 1 if the condition holds, otherwise 0.
func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tooLarge returns the error of a proposal that would make the request larger than the server accepts.
func (b *pack) tooLarge(bytes int) error {
	if len(b.commits) > 0 {
		return errFull
	}
	return invalid("it takes about %d bytes in one transaction of etcd, and the server takes %d: divide it, or raise the server's --max-request-bytes and Options.MaxBytes",
		bytes, b.limits.bytes)
}

// invalid returns the rejection of a proposal that this ledger cannot store.
func invalid(format string, args ...any) error {
	return &orbit.Rejection{Kind: orbit.ErrInvalid, Do: -1, Reason: fmt.Sprintf(format, args...)}
}

// changes returns the proposal as changes at the pack's revision.
func (b *pack) changes(p *orbit.Proposal, nodes []orbit.NodeID) []orbit.Change {
	out := make([]orbit.Change, len(p.Do))
	for i, c := range p.Do {
		out[i] = orbit.Change{Revision: b.base.Revision() + 1, Seq: b.seq + i, ID: p.ID, Do: c, Node: nodes[i]}
	}
	return out
}

// encode returns the values of the written records, as they are in next, and the number of bytes of all operations.
func (b *pack) encode(next *orbit.State, changes []orbit.Change, accesses accessSet) (values map[ref][]byte, bytes int, err error) {
	e := encoder{state: next, now: b.base.Revision() + 1, changes: changes}
	values = make(map[ref][]byte, len(accesses))
	for r, a := range accesses {
		bytes += 3 * (len(b.keys.prefix) + 3*len(r.id) + 32) // the key is in the compare, the read and the write; escaping may triple an id
		if a&puts != 0 && r.kind != kindLog {                // which transaction writes
			if r.kind == kindNode && next.Node(orbit.NodeID(r.id)) == nil {
				values[r] = nil // the transaction deletes the record
				continue
			}
			values[r] = e.record(r)
			bytes += len(values[r])
		}
	}
	if e.err != nil {
		return nil, 0, invalid("it cannot be written as JSON: %v", e.err)
	}
	return values, bytes, nil
}

// replaced returns the number of bytes of the pack's values that these values replace.
func (b *pack) replaced(values map[ref][]byte) (n int) {
	for r := range values {
		n += len(b.values[r])
	}
	return n
}

// transaction returns the transaction to be sent. Its log entry has the name of the process and the transaction's number.
func (b *pack) transaction(by string, number uint64) (compares []clientv3.Cmp, then, otherwise []clientv3.Op, err error) {
	log, err := json.Marshal(struct { // an entry whose commits have been encoded before
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
	for r, a := range b.accesses {
		if r.kind != kindNode && a&reads != 0 {
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
