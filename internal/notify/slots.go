package notify

import (
	"slices"
	"strconv"
	"strings"
)

// anySlot is the text of a notification without slots.
const anySlot = "*"

// Format returns slots as text of at most most bytes. It returns the text for any slot if slots is nil or does not fit.
func Format(slots []int, most int) string {
	if slots == nil {
		return anySlot
	}
	texts := make([]string, len(slots))
	for i, slot := range slots {
		texts[i] = strconv.Itoa(slot)
	}
	if text := strings.Join(texts, ","); len(text) <= most {
		return text
	}
	return anySlot
}

// Parse returns the slots of a text made by Format. For every other text it returns nil, which is any slot.
func Parse(text string) (slots []int) {
	for number := range strings.SplitSeq(text, ",") {
		slot, err := strconv.Atoi(number)
		if err != nil {
			return nil
		}
		slots = append(slots, slot)
	}
	return slots
}

// Union returns the slots of two notifications, ascending, or nil if one of them has none.
func Union(a, b []int) []int {
	if a == nil || b == nil {
		return nil
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// Concerns reports whether a notification for slots is for a consumer that owns the slots in owned, which are
// ascending. A notification without slots (nil) is for every consumer.
func Concerns(owned, slots []int) bool {
	return slots == nil || slices.ContainsFunc(slots, func(slot int) bool {
		_, owns := slices.BinarySearch(owned, slot)
		return owns
	})
}
