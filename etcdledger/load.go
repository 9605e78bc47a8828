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

// loaded is the ledger as its records say it is, at one revision of etcd.
type loaded struct {
	state *orbit.State
	pos   int64
}

// pageSize is how many records are read at once.
const pageSize = 4096

// load reads all records at one revision and makes a state of them. Damaged records are [*CorruptError]s.
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

// damage returns the errors of records that cannot be decoded, of the first ones if there are many.
func (t *tables) damage() error {
	const most = 10
	byKey := func(a, b ref) int { return cmp.Compare(t.keys.of(a), t.keys.of(b)) }
	var errs []error
	for _, r := range slices.SortedFunc(maps.Keys(t.bad), byKey)[:min(most, len(t.bad))] {
		errs = append(errs, t.keys.corrupt(r, t.bad[r]))
	}
	return errors.Join(errs...)
}

// fetch reads all records at one revision. No page takes longer than patience lasts: its answer may be lost.
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

// tables are all records, decoded, those of what is gone too. What cannot be decoded is in bad, with the reason.
type tables struct {
	keys keys
	pos  int64
	meta []byte
	// The newest revision of a record, which is the ledger's.
	rev      orbit.Revision
	nodes    map[orbit.NodeID]*nodeRecord
	uses     map[orbit.NodeID]*useRecord
	capsules map[orbit.CapsuleID]*capsuleRecord
	gangs    map[orbit.GangID]*gangRecord
	holds    map[orbit.HoldID]*holdRecord
	marks    map[string]*markRecord
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
		ids:      map[orbit.ProposalID]*proposalRecord{},
		bad:      map[ref]string{},
	}
}

// read files one record. Keys that are of no record are ignored.
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

// sameMeta reports whether what all processes have agreed on has changed, or is gone with everything else.
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

// file decodes one record.
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
	}
	if r.kind == kindShare {
		_, err := decode[shareRecord](text, at)
		return err
	}
	var id orbit.ProposalID
	if err := id.UnmarshalText([]byte(r.id)); err != nil {
		return err
	}
	return into(t.ids, id, text, at, nil)
}

// isSound reports whether what the record says of itself can be.
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

// into decodes one record into its table. The id in it, where it has one, must be that of its key, and what it
// says must be able to be.
func into[K comparable, T any, P value[T]](table map[K]P, id K, text []byte, at orbit.Revision, sound func(P) bool) error {
	out, err := decode[T, P](text, at)
	if err != nil {
		return err
	}
	if sound != nil && !sound(out) {
		return fmt.Errorf("it cannot be the record of %v", id)
	}
	table[id] = out
	return nil
}
