package etcdledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// loaded is the state that the records make, and the revision of etcd at which they were read.
type loaded struct {
	state *orbit.State
	pos   int64
}

// pageSize is the number of records that one request reads.
const pageSize = 4096

// load reads all records at one revision and makes a state of them. For damaged records the error is a [*CorruptError].
func load(ctx context.Context, client *clientv3.Client, k keys, meta *metaRecord, patience time.Duration) (*loaded, error) {
	t, err := fetch(ctx, client, k, patience)
	if err != nil {
		return nil, err
	}
	if err := t.sameMeta(meta); err != nil {
		return nil, err
	}
	if len(t.bad) > 0 {
		return nil, t.damage()
	}
	state, err := t.build(meta)
	if err != nil {
		return nil, err
	}
	return &loaded{state, t.pos}, nil
}

// damage returns the errors of the records that cannot be decoded, the first ten in the order of their keys.
func (t *tables) damage() error {
	const most = 10
	byKey := func(a, b ref) int { return cmp.Compare(t.keys.of(a), t.keys.of(b)) }
	var errs []error
	for _, r := range slices.SortedFunc(maps.Keys(t.bad), byKey)[:min(most, len(t.bad))] {
		errs = append(errs, t.keys.corrupt(r, t.bad[r]))
	}
	return errors.Join(errs...)
}

// fetch reads all records at one revision. It waits for each page at most for patience, because an answer may be lost.
func fetch(ctx context.Context, client *clientv3.Client, k keys, patience time.Duration) (*tables, error) {
	t := newTables(k)
	from := k.prefix
	for {
		opts := []clientv3.OpOption{clientv3.WithRange(k.end()), clientv3.WithLimit(pageSize)}
		if t.pos != 0 {
			opts = append(opts, clientv3.WithRev(t.pos))
		}
		page, cancel := context.WithTimeout(ctx, patience)
		resp, err := client.Get(page, from, opts...)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("etcdledger: read the records: %w", err)
		}
		if t.pos == 0 {
			t.pos = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			t.read(kv)
		}
		if !resp.More {
			return t, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// tables are all decoded records, including those that GC will delete. Records that cannot be decoded are in bad, with the
// reason.
type tables struct {
	keys keys
	pos  int64
	meta []byte
	// rev is the newest revision of a record, which is the ledger's revision.
	rev      orbit.Revision
	nodes    map[orbit.NodeID]*nodeRecord
	uses     map[orbit.NodeID]*useRecord
	capsules map[orbit.CapsuleID]*capsuleRecord
	gangs    map[orbit.GangID]*gangRecord
	holds    map[orbit.HoldID]*holdRecord
	marks    map[string]*markRecord
	budgets  map[orbit.BudgetID]*budgetRecord
	ids      map[orbit.ProposalID]*proposalRecord
	bad      map[ref]string
}

func newTables(k keys) *tables {
	return &tables{
		keys:     k,
		nodes:    map[orbit.NodeID]*nodeRecord{},
		uses:     map[orbit.NodeID]*useRecord{},
		capsules: map[orbit.CapsuleID]*capsuleRecord{},
		gangs:    map[orbit.GangID]*gangRecord{},
		holds:    map[orbit.HoldID]*holdRecord{},
		marks:    map[string]*markRecord{},
		budgets:  map[orbit.BudgetID]*budgetRecord{},
		ids:      map[orbit.ProposalID]*proposalRecord{},
		bad:      map[ref]string{},
	}
}

// read decodes the value of one key into the tables. It ignores keys that are not the ledger's.
func (t *tables) read(kv *mvccpb.KeyValue) {
	key, at := string(kv.Key), orbit.Revision(kv.ModRevision)
	if key == t.keys.meta() {
		t.meta = kv.Value
	}
	r, ok := t.keys.parse(key)
	if ok || key == t.keys.log() {
		t.rev = max(t.rev, at)
	}
	if !ok {
		return
	}
	if err := t.file(r, kv.Value, at); err != nil {
		t.bad[r] = err.Error()
	}
}

// sameMeta returns an error if the metaRecord has changed since Open, which happens if the ledger was deleted and made
// anew.
func (t *tables) sameMeta(meta *metaRecord) error {
	there, err := decode[metaRecord](t.meta, 0)
	if err != nil {
		return &CorruptError{Key: t.keys.meta(), Why: err.Error()}
	}
	if *there != *meta {
		return fmt.Errorf("etcdledger: %w: %q was made anew while it was in use; open it again", ErrMismatch, t.keys.prefix)
	}
	return nil
}

// file decodes one record into its table.
func (t *tables) file(r ref, text []byte, at orbit.Revision) error {
	switch r.kind {
	case kindNode:
		return into(t.nodes, orbit.NodeID(r.id), text, at, func(n *nodeRecord) bool { return string(n.Node.ID) == r.id })
	case kindUse:
		return into(t.uses, orbit.NodeID(r.id), text, at, func(u *useRecord) bool { return u.Usage <= at })
	case kindCapsule:
		return into(t.capsules, orbit.CapsuleID(r.id), text, at, (*capsuleRecord).isSound)
	case kindGang:
		return into(t.gangs, orbit.GangID(r.id), text, at, func(g *gangRecord) bool { return g.Gang == nil || string(g.Gang.ID) == r.id })
	case kindHold:
		return into(t.holds, orbit.HoldID(r.id), text, at, func(h *holdRecord) bool { return h.Hold == nil || string(h.Hold.ID) == r.id })
	case kindMark:
		return into(t.marks, r.id, text, at, nil)
	case kindBudget:
		return into(t.budgets, orbit.BudgetID(r.id), text, at, func(b *budgetRecord) bool { return b.Budget == nil || string(b.Budget.ID) == r.id })
	case kindShare, kindFence:
		_, err := decode[emptyRecord](text, at)
		return err
	}
	var id orbit.ProposalID
	if err := id.UnmarshalText([]byte(r.id)); err != nil {
		return err
	}
	return into(t.ids, id, text, at, nil)
}

// isSound reports whether the fields of the record are consistent with each other and with its revision.
func (c *capsuleRecord) isSound() bool {
	if c.Spec == nil {
		return true
	}
	for _, p := range c.Placed {
		if p.At > c.at {
			return false
		}
	}
	return c.order()>>orderBits <= uint64(c.at) && (c.Node == "" || c.Devices.Len() == c.Spec.Devices.Count)
}

// into decodes one record into its table. Sound, if it is not nil, reports whether the decoded record is consistent:
// for example, whether its id is the one in its key.
func into[K comparable, T any, P value[T]](table map[K]P, id K, text []byte, at orbit.Revision, sound func(P) bool) error {
	out, err := decode[T, P](text, at)
	if err != nil {
		return err
	}
	if sound != nil && !sound(out) {
		return fmt.Errorf("it cannot be the record of %v: its id or its revisions are wrong", id)
	}
	table[id] = out
	return nil
}
