package etcdledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// Repair makes the records below Options.Prefix consistent again, so that [Open] accepts them. Close all ledgers with this
// prefix first. It returns the keys that it has written or deleted.
//
// Repair writes a count anew if it is damaged, missing or wrong. A node without a valid description gets a cordoned one
// with no capacity; describe the node with [orbit.PutNode] when the ledger is open again. Repair cannot restore any other
// record: it fails with a [*CorruptError] that has the key, and changes nothing, until the right value has been put back
// with etcdctl or the key is in giveUp. The records in giveUp are deleted. Before you give up a capsule or a hold, make sure
// that it does not run any more. If the records of a node take more than its capacity, give up some of them too.
func Repair(ctx context.Context, client *clientv3.Client, o Options, giveUp ...string) (changed []string, err error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	t, err := fetch(ctx, client, keys{o.Prefix}, o.Patience)
	if err != nil {
		return nil, err
	}
	meta, err := decode[metaRecord](t.meta, 0)
	if err != nil {
		return nil, &CorruptError{Key: t.keys.meta(), Why: err.Error()}
	}
	r := repairer{tables: t, edits: map[string]clientv3.Op{}}
	if err := r.giveUp(giveUp); err != nil {
		return nil, err
	}
	if err := r.describeNodes(); err != nil {
		return nil, err
	}
	state, err := t.assemble(meta)
	if err != nil {
		return nil, err
	}
	if err := r.writeCounts(state); err != nil {
		return nil, err
	}
	return r.commit(ctx, client, o)
}

// repairer collects the keys to be written and deleted.
type repairer struct {
	*tables
	edits map[string]clientv3.Op
}

// giveUp plans the deletion of the records with these keys. It fails if another record is damaged and Repair cannot
// make it anew, as it can the descriptions and counts of nodes.
func (r *repairer) giveUp(names []string) error {
	for _, key := range names {
		name, ok := r.keys.parse(key)
		if !ok {
			return fmt.Errorf("etcdledger: repair: %w: %q is no key of a record below %q; give keys up as errors name them", orbit.ErrInvalid, key, r.keys.prefix)
		}
		r.forget(name)
		r.edits[key] = clientv3.OpDelete(key)
	}
	maps.DeleteFunc(r.bad, func(name ref, _ string) bool { return name.kind == kindNode || name.kind == kindUse })
	if len(r.bad) > 0 {
		return r.damage()
	}
	return nil
}

// forget removes a record from its table.
func (t *tables) forget(r ref) {
	delete(t.bad, r)
	switch r.kind {
	case kindNode:
		delete(t.nodes, orbit.NodeID(r.id))
	case kindUse:
		delete(t.uses, orbit.NodeID(r.id))
	case kindCapsule:
		delete(t.capsules, orbit.CapsuleID(r.id))
		for _, u := range t.uses {
			if _, listed := u.Remains[orbit.CapsuleID(r.id)]; listed {
				delete(u.Remains, orbit.CapsuleID(r.id))
				u.Capsules = -1 // agrees with no node, so that writeCounts writes it anew
			}
		}
	case kindGang:
		delete(t.gangs, orbit.GangID(r.id))
	case kindHold:
		delete(t.holds, orbit.HoldID(r.id))
	case kindMark:
		delete(t.marks, r.id)
	case kindBudget:
		delete(t.budgets, orbit.BudgetID(r.id))
	case kindProposal:
		maps.DeleteFunc(t.ids, func(id orbit.ProposalID, _ *proposalRecord) bool { return id.String() == r.id })
	}
}

// describeNodes gives a description and a count to every node that a record mentions and that lacks one.
func (r *repairer) describeNodes() error {
	spoken := map[orbit.NodeID]bool{}
	for id := range r.nodes {
		spoken[id] = true
	}
	for id, u := range r.uses {
		spoken[id] = spoken[id] || !u.Gone
	}
	for _, c := range r.capsules {
		spoken[c.Node] = true
	}
	for _, h := range r.holds {
		if h.Hold != nil {
			spoken[h.Hold.Node] = true
		}
	}
	delete(spoken, "") // from capsules that are not placed
	now := stamp{V: version, at: r.rev}
	e := encoder{}
	for id, is := range spoken {
		if u := r.uses[id]; is && (u == nil || u.Gone) {
			r.uses[id] = &useRecord{stamp: now, Capsules: -1, Remains: r.saidToRemain(id)} // agrees with no node, as above
		}
		if is && r.nodes[id] == nil {
			n := &nodeRecord{stamp: now, Node: orbit.Node{ID: id, State: orbit.Cordoned}}
			r.nodes[id] = n
			key := r.keys.of(ref{kindNode, string(id)})
			r.edits[key] = clientv3.OpPut(key, string(e.encode(n)))
		}
	}
	return e.err
}

// saidToRemain returns the remains on a node whose count is lost, as the records of the capsules describe them. Some of
// them may have stopped already; it does no harm if their agent confirms that again. A lost node has no remains.
func (r *repairer) saidToRemain(id orbit.NodeID) map[orbit.CapsuleID]orbit.Revision {
	out := map[orbit.CapsuleID]orbit.Revision{}
	if n := r.nodes[id]; n != nil && n.Node.State == orbit.Lost {
		return out
	}
	for name, c := range r.capsules {
		if c.Spec != nil && c.Remains != nil && c.Remains.Node == id {
			out[name] = cmp.Or(c.Remains.Since, c.at)
		}
	}
	return out
}

// writeCounts plans to write anew each count that does not agree with the state.
func (r *repairer) writeCounts(state *orbit.State) error {
	e := encoder{state: state}
	for n := range state.Nodes() {
		if name := (ref{kindUse, string(n.Node.ID)}); !r.uses[n.Node.ID].counts(n) {
			key := r.keys.of(name)
			r.edits[key] = clientv3.OpPut(key, string(e.record(name)))
		}
	}
	return e.err
}

// commit sends the edits in as many transactions as they need. It stops if a record has been written meanwhile.
func (r *repairer) commit(ctx context.Context, client *clientv3.Client, o Options) (changed []string, err error) {
	for batch := range slices.Chunk(slices.Sorted(maps.Keys(r.edits)), o.MaxOps-1) {
		compares := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(r.keys.log()), "<", r.pos+1)}
		var then []clientv3.Op
		for _, key := range batch {
			compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "<", r.pos+1))
			then = append(then, r.edits[key])
		}
		ctx, cancel := context.WithTimeout(ctx, o.Timeout)
		resp, err := client.Txn(ctx).If(compares...).Then(then...).Commit()
		cancel()
		switch {
		case err != nil:
			return changed, fmt.Errorf("etcdledger: repair: %w", err)
		case !resp.Succeeded:
			return changed, fmt.Errorf("etcdledger: repair: %w: the ledger is in use: close it everywhere", orbit.ErrConflict)
		}
		changed = append(changed, batch...)
	}
	return changed, nil
}
