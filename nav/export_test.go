package nav

// Kept is how many creates a gateway remembers so that their slots can be given back.
func Kept(g *Gateway) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.kept)
}
