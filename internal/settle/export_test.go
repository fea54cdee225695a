package settle

// Tracked returns how many leases are kept, including ended ones.
func (x *Extender) Tracked() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count
}
