package sandbox

// Kept is how many creates a gateway remembers so that their slots can be given back.
func Kept(g *Gateway) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.kept)
}

// Holders is how many nodes a navigator has filed under each volume.
func Holders(w *Warm) map[string]int {
	out := map[string]int{}
	for volume, nodes := range w.loads.holders {
		out[volume] = len(nodes)
	}
	return out
}

// Steps is how many steps of a plan a navigator keeps.
func Steps(w *Warm) int { return w.loads.draft.Checkpoint() }

// Opened is how many boxes and leaves the searches of a navigator have opened.
func Opened(w *Warm) int { return w.loads.opened }

// Judged is how many nodes a navigator has asked whether they fit.
func Judged(w *Warm) int { return w.loads.judged }
