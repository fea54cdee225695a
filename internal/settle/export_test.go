package settle

// Tracked returns how many leases are kept, ended ones too.
func (x *Extender) Tracked() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.count
}
