import pytest

from perfci.device.instructions import CLASSES, amd_class, counted, nvidia_class


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("LDG", "memory"),
        ("STS", "memory"),
        ("LDGSTS", "memory"),
        ("ULDC", "memory"),
        ("UTMALDG", "memory"),
        ("HMMA", "tensor"),
        ("HGMMA", "tensor"),
        ("UTCHMMA", "tensor"),
        ("FFMA", "float"),
        ("MUFU", "float"),
        ("HADD2", "float"),
        ("I2F", "float"),
        ("IMAD", "integer"),
        ("UIADD3", "integer"),
        ("LOP3", "integer"),
        ("ISETP", "integer"),
        ("BRA", "control"),
        ("BAR", "control"),
        ("EXIT", "control"),
        ("LDGDEPBAR", "control"),
        ("MOV", "other"),
        ("UMOV", "other"),
        ("SHFL", "other"),
        ("S2R", "other"),
        ("NOT_KNOWN_YET", "other"),
    ],
)
def test_nvidias_opcodes_have_their_class(opcode, expected):
    assert nvidia_class(opcode) == expected


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("global_load_dwordx4", "memory"),
        ("buffer_store_short", "memory"),
        ("ds_read_b128", "memory"),
        ("s_load_dwordx2", "memory"),
        ("scratch_store_dword", "memory"),
        ("v_mfma_f32_32x32x8_f16", "tensor"),
        ("v_fma_f32", "float"),
        ("v_exp_f32_e32", "float"),
        ("v_pk_mul_f32", "float"),
        ("v_cvt_f16_f32_e32", "float"),
        ("v_cmp_gt_f32_e32", "float"),
        ("v_add_u32_e32", "integer"),
        ("v_lshlrev_b32_e32", "integer"),
        ("s_and_b64", "integer"),
        ("v_cmp_gt_i64_e32", "integer"),
        ("s_cbranch_vccnz", "control"),
        ("s_waitcnt", "control"),
        ("s_endpgm", "control"),
        ("v_mov_b32_e32", "other"),
        ("v_cndmask_b32_e32", "other"),
        ("v_accvgpr_read_b32", "other"),
        ("s_nop", "other"),
    ],
)
def test_amds_opcodes_have_their_class(opcode, expected):
    assert amd_class(opcode) == expected


def test_padding_behind_the_last_instruction_is_not_counted():
    counts = counted(["LDG", "NOP", "FADD", "EXIT", "BRA", "NOP", "NOP"], nvidia_class)

    assert counts == {"memory": 1, "tensor": 0, "float": 1, "integer": 0, "control": 2, "other": 1}
    assert tuple(counts) == CLASSES


def test_nothing_has_no_instructions():
    assert sum(counted(["NOP"], nvidia_class).values()) == 0
