package sqlbatch

// Stubs of the interface, until the statements are merged.

type OwnedSlot struct {
	Slot  int
	Fence int64
	Doubt bool
}

type ReadParams struct {
	Member             [16]byte
	Slots              []OwnedSlot
	From, Cursor, Upto int64
	Rows, Behind       int
	Old                int64
	Keys               []string
}

type RefillParams struct {
	Member     [16]byte
	Slots      []OwnedSlot
	From, Upto int64
	Rows       int
	Old        int64
	Keys       []string
}

type MarkItem struct {
	Item
	SlotFence int64
}

type GiveItem struct {
	Item
	Delivery int64
	Lapse    bool
}

const MostBehind = 20_000
