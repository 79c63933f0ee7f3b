"""What torch.compile makes of a model: Dynamo, AOTAutograd and Inductor do their work as for the GPU, and each call in
the code that Inductor writes becomes an Op.
"""
