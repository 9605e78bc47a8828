package lease

// Deadlines is how many deadlines are kept.
func Deadlines(k *Keeper) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.deadlines)
}
