package codec

import "strconv"

// HistoryField is the field of the history hash that holds a slot of a record.
func HistoryField(record string, slot int) string { return record + "." + strconv.Itoa(slot) }

// AppendHistoryField appends what [HistoryField] returns to b.
func AppendHistoryField(b []byte, record string, slot int) []byte {
	return strconv.AppendInt(append(append(b, record...), '.'), int64(slot), 10)
}
