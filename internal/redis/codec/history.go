package codec

import "strconv"

// HistoryField names the place of a run in the history of a record.
func HistoryField(record string, slot int) string { return record + "." + strconv.Itoa(slot) }

// AppendHistoryField is histField at the end of b.
func AppendHistoryField(b []byte, record string, slot int) []byte {
	return strconv.AppendInt(append(append(b, record...), '.'), int64(slot), 10)
}
