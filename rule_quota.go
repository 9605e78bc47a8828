package orbit

import "fmt"

// Queues bound what the capsules that name them may use ([Queue]).

// check implements [Commitment].
func (c PutQueue) check(v *validator) Commitment {
	q := &c.Queue
	v.id("queue id", string(q.ID))
	v.text("queue id of the parent", string(q.Parent), v.limits.IDBytes)
	for _, list := range []map[string]int64{q.Nominal, q.Borrow, q.Lend} {
		for name := range list {
			v.text("name of a resource", name, v.limits.IDBytes+len(devicePrefix))
		}
	}
	v.failAll(q.faults())
	return nil
}

// check implements [Commitment].
func (c RemoveQueue) check(v *validator) Commitment {
	v.ref("queue id", string(c.Queue))
	return nil
}

func (PutQueue) subject() CapsuleID { return "" }

func (RemoveQueue) subject() CapsuleID { return "" }

func (PutQueue) effect() effect { return effect{} }

func (RemoveQueue) effect() effect { return effect{} }

// execute implements [Commitment].
func (c PutQueue) execute(*tx) (NodeID, error) {
	return "", fmt.Errorf("queue %q", c.Queue.ID)
}

// execute implements [Commitment].
func (c RemoveQueue) execute(*tx) (NodeID, error) {
	return "", fmt.Errorf("queue %q", c.Queue)
}
