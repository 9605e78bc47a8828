package sandbox

import "errors"

// GatewayStats counts what a gateway has done since it was made.
type GatewayStats struct {
	Created    uint64 // creates that returned a node
	Warm, Cold uint64 // how those booted
	Lies       uint64 // booted cold though a warm slot was promised
	Retried    uint64 // creates that went to a second node, whether or not that started them
	Failed     uint64 // creates that returned an error, for whatever reason
	Unstarted  uint64 // of those: creates that got a node, and ended with a [StartError]
	Conflicts  uint64 // proposals lost to another writer, and chosen again
	Refreshes  uint64 // of the view
	Partitions uint64 // refreshes in which telemetry failed
	// Of Failed: creates that were refused before they had a node, by kind.
	AllStale, NoSlot, NoVolume, NoTemplate, NoParent, NoNode uint64
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

// count counts a create that is over.
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
	}
	s.Created++
}

// countRefusal counts an error by its kind.
func (s *GatewayStats) countRefusal(err error) {
	if errors.Is(err, ErrStart) { // why there was no second node is no refusal
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
