package tds

import (
	"encoding/binary"
	"fmt"
	"time"
)

const (
	secondsPerDay = 86400
	dayOfUnixZero = 719162 // days from 0001-01-01 to 1970-01-01
	dayOf1900     = 693595 // days from 0001-01-01 to 1900-01-01
	dayOf1753     = 639905
	lastDay       = 3652058 // 9999-12-31
	datetimeTicks = 300     // of datetime, per second
)

// splitTime returns the day since 0001-01-01 and the time of that day, both in
// UTC.
func splitTime(t time.Time) (day int, ofDay time.Duration) {
	sec := t.Unix()
	d := sec / secondsPerDay
	if sec%secondsPerDay < 0 {
		d--
	}
	return int(d) + dayOfUnixZero, time.Duration(sec-d*secondsPerDay)*time.Second + time.Duration(t.Nanosecond())
}

// joinTime is the inverse of splitTime.
func joinTime(day int, ofDay time.Duration) time.Time {
	return time.Unix(int64(day-dayOfUnixZero)*secondsPerDay+int64(ofDay/time.Second), int64(ofDay%time.Second)).UTC()
}

// clockBytes returns the width of the time part of a type with that scale.
func clockBytes(scale uint8) int {
	switch {
	case scale <= 2:
		return 3
	case scale <= 4:
		return 4
	default:
		return 5
	}
}

// tick returns the resolution of a scale.
func tick(scale uint8) time.Duration {
	d := time.Second
	for ; scale > 0; scale-- {
		d /= 10
	}
	return d
}

// appendClock appends a time of day, truncated to the scale.
func appendClock(b []byte, ofDay time.Duration, scale uint8) []byte {
	n := uint64(ofDay / tick(scale))
	for i := 0; i < clockBytes(scale); i++ {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}

func decodeClock(b []byte, scale uint8) (time.Duration, error) {
	var n uint64
	for i := len(b) - 1; i >= 0; i-- {
		n = n<<8 | uint64(b[i])
	}
	if n >= uint64(24*time.Hour/tick(scale)) {
		return 0, malformedf("time of day %d at scale %d", n, scale)
	}
	return time.Duration(n) * tick(scale), nil
}

func appendDay(b []byte, day int) ([]byte, error) {
	if day < 0 || day > lastDay {
		return b, fmt.Errorf("day %d is not in the years 1 to 9999", day)
	}
	return append(b, byte(day), byte(day>>8), byte(day>>16)), nil
}

func decodeDay(b []byte) (int, error) {
	day := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
	if day > lastDay {
		return 0, malformedf("day %d", day)
	}
	return day, nil
}

// appendDateTime appends the eight bytes of datetime, rounded to its 1/300 s.
func appendDateTime(b []byte, t time.Time) ([]byte, error) {
	day, ofDay := splitTime(t)
	ticks := (int64(ofDay)*datetimeTicks + int64(time.Second)/2) / int64(time.Second)
	if ticks == secondsPerDay*datetimeTicks {
		day, ticks = day+1, 0
	}
	if day < dayOf1753 || day > lastDay {
		return b, fmt.Errorf("%v does not fit datetime", t)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(int32(day-dayOf1900)))
	return binary.LittleEndian.AppendUint32(b, uint32(ticks)), nil
}

// decodeDateTime reads datetime, to the millisecond as a server shows it.
func decodeDateTime(b []byte) (time.Time, error) {
	day := int(int32(binary.LittleEndian.Uint32(b))) + dayOf1900
	ticks := int64(binary.LittleEndian.Uint32(b[4:]))
	if day < dayOf1753 || day > lastDay || ticks >= secondsPerDay*datetimeTicks {
		return time.Time{}, malformedf("datetime of day %d, tick %d", day, ticks)
	}
	ms := (ticks*1000 + datetimeTicks/2) / datetimeTicks
	return joinTime(day, time.Duration(ms)*time.Millisecond), nil
}

// appendSmallDateTime appends the four bytes of smalldatetime; seconds are cut off.
func appendSmallDateTime(b []byte, t time.Time) ([]byte, error) {
	day, ofDay := splitTime(t)
	day -= dayOf1900
	if day < 0 || day > 0xffff {
		return b, fmt.Errorf("%v does not fit smalldatetime", t)
	}
	b = binary.LittleEndian.AppendUint16(b, uint16(day))
	return binary.LittleEndian.AppendUint16(b, uint16(ofDay/time.Minute)), nil
}

func decodeSmallDateTime(b []byte) (time.Time, error) {
	minutes := binary.LittleEndian.Uint16(b[2:])
	if minutes >= 24*60 {
		return time.Time{}, malformedf("smalldatetime of minute %d", minutes)
	}
	return joinTime(int(binary.LittleEndian.Uint16(b))+dayOf1900, time.Duration(minutes)*time.Minute), nil
}
