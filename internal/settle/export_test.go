package settle

// Tracked returns how many leases are kept, including ended ones.
func (x *Extender) Tracked() (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, leases := range x.tracked {
		n += len(leases)
	}
	return n
}
