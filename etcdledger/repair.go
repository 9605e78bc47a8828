package etcdledger

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/orbitsched/orbit"
)

// Repair accepts what can be read of a node as all there is: its count is written anew, and the node opens again,
// everywhere. Whoever calls it has made sure that nothing else runs there, and has put right or deleted the
// records that cannot be read: as long as there are any of capsules, gangs or holds, of whichever node, it is
// refused, for they may be of this one. It is refused, too, if what can be read takes more than the node has. A
// description that is damaged is put right with [orbit.PutNode].
func (l *Ledger) Repair(ctx context.Context, node orbit.NodeID) error {
	g, err := l.reach(ctx, l.acknowledged())
	if err != nil {
		return err
	}
	r := ref{kindUse, string(node)}
	if err := l.mayRepair(&g, r); err != nil {
		return err
	}
	e := encoder{state: g.state}
	value := e.record(r)
	ctx, cancel := context.WithTimeout(ctx, l.options.Timeout)
	defer cancel()
	resp, err := l.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(l.keys.of(r)), "<", g.pos+1), clientv3.Compare(clientv3.ModRevision(l.keys.log()), "<", g.pos+1)).
		Then(clientv3.OpPut(l.keys.of(r), string(value))).Commit()
	switch {
	case err != nil:
		return fmt.Errorf("etcdledger: repair %q: %w", node, err)
	case !resp.Succeeded:
		return fmt.Errorf("etcdledger: repair %q: %w: it has changed meanwhile; repair it again", node, orbit.ErrConflict)
	}
	_, err = l.reach(ctx, resp.Header.Revision)
	return err
}

// mayRepair says why a node's count cannot be written anew.
func (l *Ledger) mayRepair(g *glance, r ref) error {
	n := g.state.Node(orbit.NodeID(r.id))
	if n == nil {
		return fmt.Errorf("etcdledger: %w: repair: there is no node %q", orbit.ErrInvalid, r.id)
	}
	if _, damaged := g.bad[ref{kindNode, r.id}]; damaged {
		return fmt.Errorf("etcdledger: %w: repair %q: its description is damaged: describe it anew with PutNode", orbit.ErrInvalid, r.id)
	}
	if _, damaged := g.bad[r]; !damaged {
		return fmt.Errorf("etcdledger: %w: repair %q: its count is not damaged", orbit.ErrInvalid, r.id)
	}
	for other, why := range g.bad {
		if other.kind == kindCapsule || other.kind == kindGang || other.kind == kindHold {
			return fmt.Errorf("etcdledger: repair %q: it may be of this node: %w", r.id, l.keys.corrupt(other, why))
		}
	}
	if !n.Used().Within(n.Node.Capacity) {
		return fmt.Errorf("etcdledger: %w: repair %q: %d capsules and %d holds take %v of %v: delete the records of what does not run there first",
			orbit.ErrInvalid, r.id, n.Capsules, n.Holds(), n.Used(), n.Node.Capacity)
	}
	return nil
}
