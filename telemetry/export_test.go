package telemetry

// Armed is how many deadlines are kept.
func Armed(l *Leases) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.deadlines)
}
