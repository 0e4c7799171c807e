# ruff: noqa: PT009

import unittest

from bookings import free, merge


class Merge(unittest.TestCase):
    def test_overlapping_spans_become_one(self):
        self.assertEqual(merge([(540, 600), (570, 660)]), [(540, 660)])

    def test_touching_spans_become_one(self):
        self.assertEqual(merge([(540, 600), (600, 660)]), [(540, 660)])

    def test_a_span_inside_another_vanishes(self):
        self.assertEqual(merge([(540, 720), (570, 600)]), [(540, 720)])


class Free(unittest.TestCase):
    def test_no_bookings_leave_the_whole_day(self):
        self.assertEqual(free([], 480, 1080), [(480, 1080)])

    def test_gaps_lie_between_bookings(self):
        self.assertEqual(free([(540, 600), (660, 720)], 480, 1080), [(480, 540), (600, 660), (720, 1080)])


if __name__ == "__main__":
    unittest.main()
