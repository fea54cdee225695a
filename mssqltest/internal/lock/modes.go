package lock

import "math/bits"

const modeCount = int(RangeXU) + 1

// modeSet has one bit for each mode.
type modeSet uint32

func (s modeSet) has(m Mode) bool { return s&(1<<m) != 0 }

// chart is the compatibility chart of the locking guide ("Lock Compatibility", LockConflictTable), in the guide's order
// and without its NL and BU: N no conflict, C conflict, I illegal (the two never meet on one resource).
var chart = [...]struct {
	mode Mode
	row  string
}{
	//        SchS SchM
	//        | |  S U X  IS IU IX SIU SIX UIX  RSS RSU  RIN RIS RIU RIX  RXS RXU RXX
	{SchS, "    N C  N N N  N  N  N  N   N   N    I   I    I   I   I   I    I   I   I"},
	{SchM, "    C C  C C C  C  C  C  C   C   C    I   I    I   I   I   I    I   I   I"},
	{S, "       N C  N N C  N  N  C  N   C   C    N   N    N   N   N   C    N   N   C"},
	{U, "       N C  N C C  N  C  C  C   C   C    N   C    N   N   C   C    N   C   C"},
	{X, "       N C  C C C  C  C  C  C   C   C    C   C    N   C   C   C    C   C   C"},
	{IS, "      N C  N N C  N  N  N  N   N   N    I   I    I   I   I   I    I   I   I"},
	{IU, "      N C  N C C  N  N  N  N   N   C    I   I    I   I   I   I    I   I   I"},
	{IX, "      N C  C C C  N  N  N  C   C   C    I   I    I   I   I   I    I   I   I"},
	{SIU, "     N C  N C C  N  N  C  N   C   C    I   I    I   I   I   I    I   I   I"},
	{SIX, "     N C  C C C  N  N  C  C   C   C    I   I    I   I   I   I    I   I   I"},
	{UIX, "     N C  C C C  N  C  C  C   C   C    I   I    I   I   I   I    I   I   I"},
	{RangeSS, " I I  N N C  I  I  I  I   I   I    N   N    C   C   C   C    C   C   C"},
	{RangeSU, " I I  N C C  I  I  I  I   I   I    N   C    C   C   C   C    C   C   C"},
	{RangeIN, " I I  N N N  I  I  I  I   I   I    C   C    N   N   N   N    C   C   C"},
	{RangeIS, " I I  N N C  I  I  I  I   I   I    C   C    N   N   N   C    C   C   C"},
	{RangeIU, " I I  N C C  I  I  I  I   I   I    C   C    N   N   C   C    C   C   C"},
	{RangeIX, " I I  C C C  I  I  I  I   I   I    C   C    N   C   C   C    C   C   C"},
	{RangeXS, " I I  N N C  I  I  I  I   I   I    C   C    C   C   C   C    C   C   C"},
	{RangeXU, " I I  N C C  I  I  I  I   I   I    C   C    C   C   C   C    C   C   C"},
	{RangeXX, " I I  C C C  I  I  I  I   I   I    C   C    C   C   C   C    C   C   C"},
}

var modeNames = [modeCount]string{
	None: "NL", SchS: "Sch-S", SchM: "Sch-M",
	IS: "IS", IU: "IU", IX: "IX", S: "S", U: "U",
	SIX: "SIX", UIX: "UIX", SIU: "SIU", X: "X",
	RangeSS: "RangeS-S", RangeSU: "RangeS-U", RangeIN: "RangeI-N", RangeXX: "RangeX-X",
	RangeIS: "RangeI-S", RangeIU: "RangeI-U", RangeIX: "RangeI-X",
	RangeXS: "RangeX-S", RangeXU: "RangeX-U",
}

// conflicts[m] has the modes that another owner cannot hold together with m, including modes that are illegal with it.
var conflicts = readChart()

// unions[a][b] is Union(a, b).
var unions = leastUpperBounds()

// String returns the mode's name in sys.dm_tran_locks, without the dashes.
func (m Mode) String() string {
	if int(m) >= modeCount {
		return "invalid"
	}
	return modeNames[m]
}

// Compatible reports whether two owners can hold a and b on one resource.
func Compatible(a, b Mode) bool { return !conflicts[a].has(b) }

// Union returns the weakest mode that excludes all that a and b exclude: the mode that an owner of a holds when b is
// also granted to it.
func Union(a, b Mode) Mode { return unions[a][b] }

// isRange reports whether m is a key-range mode.
func isRange(m Mode) bool { return m >= RangeSS }

func readChart() (sets [modeCount]modeSet) {
	for _, line := range chart {
		column := 0
		for _, c := range line.row {
			if c == ' ' {
				continue
			}
			if c != 'N' {
				sets[line.mode] |= 1 << chart[column].mode
			}
			column++
		}
	}
	return sets
}

const (
	keyModes   modeSet = 1<<S | 1<<U | 1<<X | allRangeModes
	tableModes modeSet = 1<<modeCount - 1 - allRangeModes

	allRangeModes modeSet = 1<<modeCount - 1<<RangeSS
)

// leastUpperBounds finds, for each pair of modes, the mode with the fewest conflicts that has the conflicts of both,
// among the modes that apply to the same kind of resource. This yields the named combinations (SIX, SIU, UIX), the
// guide's table of conversion locks, and RangeX-X for X on a key whose range is held, which the guide describes without
// a table. The only tie is between X and RangeI-X, which exclude the same keys: there the range mode is the result,
// because one of the two was a range mode.
func leastUpperBounds() (table [modeCount][modeCount]Mode) {
	for a := range Mode(modeCount) {
		for b := range Mode(modeCount) {
			kind := tableModes
			if isRange(a) || isRange(b) {
				kind = keyModes
			}
			need := (conflicts[a] | conflicts[b]) & kind
			fewest := modeCount + 1
			for m := range Mode(modeCount) {
				got := conflicts[m] & kind
				n := bits.OnesCount32(uint32(got))
				if kind.has(m) && got&need == need && n <= fewest {
					fewest, table[a][b] = n, m
				}
			}
		}
	}
	return table
}
