package sandbox

import "errors"

// GatewayStats counts what a gateway has done since it was made.
type GatewayStats struct {
	// Created counts creates that returned a node.
	Created uint64
	// Warm and Cold count how the created capsules booted.
	Warm, Cold uint64
	// Lies counts capsules that booted cold though a warm slot was promised.
	Lies uint64
	// Retried counts creates that tried a second node, whether or not it started the capsule.
	Retried uint64
	// Failed counts creates that returned an error, for any reason.
	Failed uint64
	// Unstarted counts the creates among Failed that got a node and ended with a [StartError].
	Unstarted uint64
	// Conflicts counts proposals that lost to another writer, after which the node was chosen again.
	Conflicts uint64
	// Refreshes counts refreshes of the view.
	Refreshes uint64
	// Partitions counts refreshes in which telemetry failed.
	Partitions uint64
	// AllStale and the fields beside it count, by kind of error, the creates among Failed that were refused before they
	// had a node.
	AllStale, NoSlot, NoVolume, NoTemplate, NoParent, NoNode uint64
}

// Outcomes returns how many creates have had each outcome, for metrics. Every create that has returned counts once:
//
//	warm, cold       it got a node; broken_promise: it booted cold though a warm slot was promised
//	unstarted        two nodes have not started it, or one, and there was no other
//	all_stale, no_slot, no_volume, no_template, no_parent, no_node   it was refused before it had a node
//	failed           it failed for any other reason
func (s GatewayStats) Outcomes() map[string]uint64 {
	refused := s.Unstarted + s.AllStale + s.NoSlot + s.NoVolume + s.NoTemplate + s.NoParent + s.NoNode
	return map[string]uint64{
		"warm": s.Warm, "cold": s.Cold - s.Lies, "broken_promise": s.Lies, "unstarted": s.Unstarted, "all_stale": s.AllStale, "no_slot": s.NoSlot,
		"no_volume": s.NoVolume, "no_template": s.NoTemplate, "no_parent": s.NoParent, "no_node": s.NoNode, "failed": s.Failed - refused,
	}
}

// Stats returns the counts.
func (g *Gateway) Stats() GatewayStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats
}

// tally changes the counts.
func (g *Gateway) tally(change func(*GatewayStats)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.stats)
}

// count counts a finished create.
func (g *Gateway) count(made *Created, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.stats
	switch {
	case err != nil:
		s.Failed++
		s.countRefusal(err)
		return
	case made.Warm:
		s.Warm++
	default:
		s.Cold++
		if made.Promised {
			s.Lies++
		}
	}
	s.Created++
}

// countRefusal counts an error by its kind.
func (s *GatewayStats) countRefusal(err error) {
	if errors.Is(err, ErrStart) { // a StartError may wrap the reason why there was no second node, which is no refusal
		s.Unstarted++
		return
	}
	var e *WarmNoFit
	if !errors.As(err, &e) {
		return
	}
	counts := map[error]*uint64{
		ErrAllStale: &s.AllStale, ErrNoSlot: &s.NoSlot, ErrNoVolume: &s.NoVolume,
		ErrNoTemplate: &s.NoTemplate, ErrNoParent: &s.NoParent, ErrNoNode: &s.NoNode,
	}
	if n := counts[e.Kind]; n != nil {
		*n++
	}
}
