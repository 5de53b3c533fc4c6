"""What the cost paper published: an A40, a host of 48 cores, Triton of 2024."""

TABLE_1_MS: dict[tuple[int, ...], float] = {
    (128, 256, 64): 837.82,
    (64, 256, 32): 759.06,
    (128, 128, 32): 681.80,
    (256, 64, 128): 2638.25,
    (64, 128, 64): 560.03,
    (128, 32, 64): 419.68,
}
TABLE_1_TOTAL_S = 15.17
TABLE_2_S = {
    256: 1.17,
    384: 1.17,
    640: 1.17,
    768: 1.17,
    2560: 1.32,
    2688: 1.33,
    3840: 1.45,
    3968: 1.47,
    4096: 1.49,
}
# Four configs × 64 sizes: seconds in all, then mean, least and most of one in microseconds.
TABLE_3 = {
    "256 MB": {
        "product": (4.45, 91.0023, 3.359, 4068.436),
        "clearing": (21.42, 394.1142, 391.650, 399.105),
    },
    "off": {
        "product": (4.49, 92.3131, 3.328, 4063.944),
        "clearing": (0.50, 394.1129, 391.904, 397.793),
    },
}
# "L2" was 8 MB there.
TABLE_5_S = {"256 MB": 1591.8, "L2": 1170.2, "off": 691.2}
TABLE_7_S = {1: 271.560, 8: 53.007, 16: 37.086, 32: 34.282, 48: 40.523}
FIGURE_2 = "below 0.5 ms a kernel, over 50 of the 100 ms asked for can be missing"
