"""Cross-entropy and mutual distillation, computed by hand."""

import math

import pytest
import torch

from fedbench_plugins.objectives import cross_entropy, mutual_kl, ramp_up

Y = torch.tensor([0])
TWO = [torch.tensor([[0.0, 0.0]], requires_grad=True), torch.tensor([[math.log(3.0), 0.0]], requires_grad=True)]


def test_cross_entropy_sums_over_exits():
    assert cross_entropy(TWO, Y, 0).item() == pytest.approx(math.log(2) + math.log(4 / 3))


def test_ramp_up_rises_from_e_to_the_minus_five_to_one():
    assert ramp_up(0, 100) == pytest.approx(math.exp(-5))
    assert ramp_up(50, 100) == pytest.approx(math.exp(-5 * 0.25))
    assert ramp_up(100, 100) == ramp_up(200, 100) == 1.0


def test_ramp_up_of_the_reference_stays_below_five_percent_for_a_hundred_rounds():
    assert ramp_up(99, 500) < 0.05
    assert ramp_up(150, 500) == pytest.approx(0.086, abs=0.001)


def test_mutual_kl_of_two_exits():
    p, q = (0.5, 0.5), (0.75, 0.25)
    kl_qp = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))  # target q, imitated by p
    kl_pq = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    expected = math.log(2) + math.log(4 / 3) + ramp_up(10, 100) / 1 * (kl_qp + kl_pq)
    assert mutual_kl(TWO, Y, 10, 100).item() == pytest.approx(expected, rel=1e-6)


def test_the_imitated_exit_gets_no_gradient_from_the_distance():
    teacher = torch.tensor([[2.0, 0.0]], requires_grad=True)
    student = torch.tensor([[0.0, 0.0]], requires_grad=True)
    mutual_kl([student, teacher], Y, 100, 100).backward()
    q = torch.softmax(torch.tensor([2.0, 0.0]), 0)
    # d CE / d o = softmax - onehot, and d KL(student || teacher) / d teacher = softmax(teacher) - softmax(student)
    expected = (q - torch.tensor([1.0, 0.0])) + (q - torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(teacher.grad[0], expected)


def test_one_exit_has_nobody_to_learn_from():
    assert mutual_kl(TWO[:1], Y, 5, 10).item() == pytest.approx(math.log(2))


def test_epsilon_is_added_to_the_target():
    plain, shifted = mutual_kl(TWO, Y, 100, 100), mutual_kl(TWO, Y, 100, 100, epsilon=0.1)
    p, q = torch.tensor([0.5, 0.5]), torch.tensor([0.75, 0.25])

    def kl(target, log_p):
        return (target * (target.log() - log_p)).sum()

    difference = kl(q + 0.1, p.log()) + kl(p + 0.1, q.log()) - kl(q, p.log()) - kl(p, q.log())
    assert (shifted - plain).item() == pytest.approx(difference.item(), rel=1e-5)
